// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/rows.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After foreach_target.h: compiled once per instruction set.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using U16 = hn::Rebind<uint16_t, U32>;
using Floats = hn::Vec<F32>;

constexpr int64_t kLanes = hn::MaxLanes(F32());

// The next vector of a row with `left` elements to go; lanes beyond it hold `fill`.
HWY_INLINE Floats load(const float* from, int64_t left, float fill = 0.0f) {
  if (left >= kLanes) return hn::LoadU(F32(), from);
  HWY_ALIGN float part[kLanes];
  std::fill_n(std::copy_n(from, left, part), kLanes - left, fill);
  return hn::Load(F32(), part);
}

HWY_INLINE Floats load(const BF16* from, int64_t left) {
  HWY_ALIGN BF16 part[kLanes] = {};
  if (left < kLanes) from = std::copy_n(from, left, part) - left;
  const auto bits = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

HWY_INLINE void store(Floats value, float* to, int64_t left) {
  if (left >= kLanes) return hn::StoreU(value, F32(), to);
  HWY_ALIGN float part[kLanes];
  hn::Store(value, F32(), part);
  std::copy_n(part, left, to);
}

HWY_INLINE void store(Floats value, BF16* to, int64_t left) {
  const U32 u32;
  const auto bits = hn::BitCast(u32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u32, 0x7fff)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40));
  const auto is_nan = hn::RebindMask(u32, hn::IsNaN(value));
  const auto narrow = hn::TruncateTo(U16(), hn::IfThenElse(is_nan, quiet, rounded));
  HWY_ALIGN BF16 part[kLanes];
  BF16* const target = left >= kLanes ? to : part;
  hn::StoreU(narrow, U16(), reinterpret_cast<uint16_t*>(target));
  if (left < kLanes) std::copy_n(part, left, to);
}

// exp that keeps NaN.
HWY_INLINE Floats exponential(Floats x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(F32(), x)); }

void widen(const BF16* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(load(from + i, count - i), to + i, count - i);
}

void narrow(const float* from, BF16* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(load(from + i, count - i), to + i, count - i);
}

template <typename T>
HWY_INLINE void add(const T* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    store(hn::Add(load(to + i, count - i), load(from + i, count - i)), to + i, count - i);
}
void add_floats(const float* from, float* to, int64_t count) { add(from, to, count); }
void add_bf16(const BF16* from, float* to, int64_t count) { add(from, to, count); }

void multiply(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    store(hn::Mul(load(to + i, count - i), load(from + i, count - i)), to + i, count - i);
}

void scale(float* row, int64_t count, float factor) {
  const Floats by = hn::Set(F32(), factor);
  for (int64_t i = 0; i < count; i += kLanes) store(hn::Mul(load(row + i, count - i), by), row + i, count - i);
}

float dot(const float* a, const float* b, int64_t count) {
  Floats sum = hn::Zero(F32());
  for (int64_t i = 0; i < count; i += kLanes) sum = hn::MulAdd(load(a + i, count - i), load(b + i, count - i), sum);
  return hn::GetLane(hn::SumOfLanes(F32(), sum));
}

float largest(const float* row, int64_t count) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Floats maximum = hn::Set(F32(), lowest);
  for (int64_t i = 0; i < count; i += kLanes) maximum = hn::Max(maximum, load(row + i, count - i, lowest));
  return hn::GetLane(hn::MaxOfLanes(F32(), maximum));
}

// exp(row - shift) one vector at a time: consume(value, index, left). Lanes beyond the row are exp(-infinity) = 0.
template <typename Consume>
HWY_INLINE void for_each_exp(const float* row, int64_t count, float shift, Consume consume) {
  const Floats by = hn::Set(F32(), shift);
  for (int64_t i = 0; i < count; i += kLanes)
    consume(exponential(hn::Sub(load(row + i, count - i, -std::numeric_limits<float>::infinity()), by)), i, count - i);
}

float sum_exp(const float* row, int64_t count, float shift) {
  Floats sum = hn::Zero(F32());
  for_each_exp(row, count, shift, [&](Floats value, int64_t, int64_t) HWY_ATTR { sum = hn::Add(sum, value); });
  return hn::GetLane(hn::SumOfLanes(F32(), sum));
}

float exp_in_place(float* row, int64_t count, float shift) {
  Floats sum = hn::Zero(F32());
  for_each_exp(row, count, shift, [&](Floats value, int64_t i, int64_t left) HWY_ATTR {
    store(value, row + i, left);
    sum = hn::Add(sum, value);
  });
  return hn::GetLane(hn::SumOfLanes(F32(), sum));
}

void scaled_exp(float* row, int64_t count, float shift, float factor) {
  const Floats by = hn::Set(F32(), factor);
  for_each_exp(row, count, shift,
               [&](Floats value, int64_t i, int64_t left) HWY_ATTR { store(hn::Mul(value, by), row + i, left); });
}

void softmax_gradient(const float* probabilities, float* dprobabilities, int64_t count, float delta) {
  const Floats by = hn::Set(F32(), delta);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats difference = hn::Sub(load(dprobabilities + i, count - i), by);
    store(hn::Mul(load(probabilities + i, count - i), difference), dprobabilities + i, count - i);
  }
}

// The 4 x 4 blocks of a transpose; the rest element by element.
#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kBlock = 1;
HWY_INLINE void transpose_one(const float* from, int64_t, float* to, int64_t) { *to = *from; }
#else
constexpr int64_t kBlock = 4;
HWY_INLINE void transpose_one(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 4> f4;
  const auto a = hn::LoadU(f4, from), b = hn::LoadU(f4, from + from_stride);
  const auto c = hn::LoadU(f4, from + 2 * from_stride), d = hn::LoadU(f4, from + 3 * from_stride);
  const auto low_ac = hn::InterleaveLower(f4, a, c), low_bd = hn::InterleaveLower(f4, b, d);
  const auto high_ac = hn::InterleaveUpper(f4, a, c), high_bd = hn::InterleaveUpper(f4, b, d);
  hn::StoreU(hn::InterleaveLower(f4, low_ac, low_bd), f4, to);
  hn::StoreU(hn::InterleaveUpper(f4, low_ac, low_bd), f4, to + to_stride);
  hn::StoreU(hn::InterleaveLower(f4, high_ac, high_bd), f4, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(f4, high_ac, high_bd), f4, to + 3 * to_stride);
}
#endif

void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float* to, int64_t to_stride) {
  const int64_t whole_rows = rows / kBlock * kBlock, whole_cols = cols / kBlock * kBlock;
  for (int64_t row = 0; row < whole_rows; row += kBlock)
    for (int64_t col = 0; col < whole_cols; col += kBlock)
      transpose_one(from + row * from_stride + col, from_stride, to + col * to_stride + row, to_stride);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = row < whole_rows ? whole_cols : 0; col < cols; ++col)
      to[col * to_stride + row] = from[row * from_stride + col];
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(add_floats);
HWY_EXPORT(add_bf16);
HWY_EXPORT(multiply);
HWY_EXPORT(scale);
HWY_EXPORT(dot);
HWY_EXPORT(largest);
HWY_EXPORT(sum_exp);
HWY_EXPORT(exp_in_place);
HWY_EXPORT(scaled_exp);
HWY_EXPORT(softmax_gradient);
HWY_EXPORT(transpose);

void widen_row(const BF16* from, float* to, int64_t count) { HWY_DYNAMIC_DISPATCH(widen)(from, to, count); }
void narrow_row(const float* from, BF16* to, int64_t count) { HWY_DYNAMIC_DISPATCH(narrow)(from, to, count); }
void add_row(const float* from, float* to, int64_t count) { HWY_DYNAMIC_DISPATCH(add_floats)(from, to, count); }
void add_row(const BF16* from, float* to, int64_t count) { HWY_DYNAMIC_DISPATCH(add_bf16)(from, to, count); }
void multiply_row(const float* from, float* to, int64_t count) { HWY_DYNAMIC_DISPATCH(multiply)(from, to, count); }
void scale_row(float* row, int64_t count, float factor) { HWY_DYNAMIC_DISPATCH(scale)(row, count, factor); }
float dot_row(const float* a, const float* b, int64_t count) { return HWY_DYNAMIC_DISPATCH(dot)(a, b, count); }
float max_row(const float* row, int64_t count) { return HWY_DYNAMIC_DISPATCH(largest)(row, count); }
float sum_exp_row(const float* row, int64_t count, float shift) {
  return HWY_DYNAMIC_DISPATCH(sum_exp)(row, count, shift);
}
float exp_row(float* row, int64_t count, float shift) { return HWY_DYNAMIC_DISPATCH(exp_in_place)(row, count, shift); }
void scaled_exp_row(float* row, int64_t count, float shift, float factor) {
  HWY_DYNAMIC_DISPATCH(scaled_exp)(row, count, shift, factor);
}
void softmax_gradient_row(const float* probabilities, float* dprobabilities, int64_t count, float delta) {
  HWY_DYNAMIC_DISPATCH(softmax_gradient)(probabilities, dprobabilities, count, delta);
}
void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(transpose)(from, from_stride, rows, cols, to, to_stride);
}

}  // namespace strata::kernels
#endif
