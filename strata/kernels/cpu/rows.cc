// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/rows.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After foreach_target.h: compiled once per instruction set.
#include "strata/kernels/cpu/dropout-inl.h"
#include "strata/kernels/cpu/simd-inl.h"
#include "strata/kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

using Floats = hn::Vec<FloatTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr bool kMaskedMemory = kLanes > 4;  // masked loads and stores do not touch the other lanes' memory

// body(index, count) for every vector of a row: whole ones, then the rest.
template <typename Body>
HWY_INLINE void for_each_part(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
  if (i < count) body(i, count - i);
}

HWY_INLINE auto first(int64_t count) { return hn::FirstN(FloatTag(), static_cast<size_t>(count)); }

// The first `count` lanes from memory, the others 0.
HWY_INLINE Floats load_part(const float* from, int64_t count) {
  const FloatTag d;
  if (count == kLanes) return load(d, from);
  if constexpr (kMaskedMemory) return hn::MaskedLoad(first(count), d, from);
  HWY_ALIGN float part[kLanes] = {};
  std::copy_n(from, count, part);
  return load(d, part);
}

HWY_INLINE Floats load_part(const BF16* from, int64_t count) {
  if (count == kLanes) return load(FloatTag(), from);
  HWY_ALIGN BF16 part[kLanes] = {};
  std::copy_n(from, count, part);
  return load(FloatTag(), part);
}

HWY_INLINE void store_part(Floats value, float* to, int64_t count) {
  const FloatTag d;
  if (count == kLanes) return store(d, value, to);
  if constexpr (kMaskedMemory) return hn::BlendedStore(value, first(count), d, to);
  HWY_ALIGN float part[kLanes];
  store(d, value, part);
  std::copy_n(part, count, to);
}

HWY_INLINE void store_part(Floats value, BF16* to, int64_t count) {
  if (count == kLanes) return store(FloatTag(), value, to);
  HWY_ALIGN BF16 part[kLanes];
  store(FloatTag(), value, part);
  std::copy_n(part, count, to);
}

void widen(const BF16* from, float* to, int64_t count) {
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR { store_part(load_part(from + i, part), to + i, part); });
}

void narrow(const float* from, BF16* to, int64_t count) {
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR { store_part(load_part(from + i, part), to + i, part); });
}

template <typename T>
HWY_INLINE void add(const T* from, float* to, int64_t count) {
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR {
    store_part(hn::Add(load_part(to + i, part), load_part(from + i, part)), to + i, part);
  });
}
void add_floats(const float* from, float* to, int64_t count) { add(from, to, count); }
void add_bf16(const BF16* from, float* to, int64_t count) { add(from, to, count); }

void multiply(const float* from, float* to, int64_t count) {
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR {
    store_part(hn::Mul(load_part(to + i, part), load_part(from + i, part)), to + i, part);
  });
}

void scale(float* row, int64_t count, float factor) {
  const Floats by = hn::Set(FloatTag(), factor);
  for_each_part(count, [&](int64_t i, int64_t part)
                           HWY_ATTR { store_part(hn::Mul(load_part(row + i, part), by), row + i, part); });
}

float dot(const float* a, const float* b, int64_t count) {
  Floats sum = hn::Zero(FloatTag());
  for_each_part(count, [&](int64_t i, int64_t part)
                           HWY_ATTR { sum = hn::MulAdd(load_part(a + i, part), load_part(b + i, part), sum); });
  return hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
}

float largest(const float* row, int64_t count) {
  const Floats lowest = hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
  Floats maximum = lowest;
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR {
    const Floats value = load_part(row + i, part);
    maximum = hn::Max(maximum, part == kLanes ? value : hn::IfThenElse(first(part), value, lowest));
  });
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), maximum));
}

// consume(exp(row - shift), index, count), one vector at a time; lanes beyond the row are 0.
template <typename Consume>
HWY_INLINE void for_each_exp(const float* row, int64_t count, float shift, const Consume& consume) {
  const FloatTag d;
  const Floats by = hn::Set(d, shift);
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR {
    const Floats x = hn::Sub(load_part(row + i, part), by);
    const Floats value = hn::IfThenElse(hn::IsNaN(x), x, exponential(d, x));
    consume(part == kLanes ? value : hn::IfThenElseZero(first(part), value), i, part);
  });
}

float sum_exp(const float* row, int64_t count, float shift) {
  Floats sum = hn::Zero(FloatTag());
  for_each_exp(row, count, shift, [&](Floats value, int64_t, int64_t) HWY_ATTR { sum = hn::Add(sum, value); });
  return hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
}

float exp_in_place(float* row, int64_t count, float shift) {
  Floats sum = hn::Zero(FloatTag());
  for_each_exp(row, count, shift, [&](Floats value, int64_t i, int64_t part) HWY_ATTR {
    store_part(value, row + i, part);
    sum = hn::Add(sum, value);
  });
  return hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
}

void scaled_exp(float* row, int64_t count, float shift, float factor) {
  const Floats by = hn::Set(FloatTag(), factor);
  for_each_exp(row, count, shift,
               [&](Floats value, int64_t i, int64_t part) HWY_ATTR { store_part(hn::Mul(value, by), row + i, part); });
}

void softmax_gradient(const float* probabilities, float* dprobabilities, int64_t count, float delta) {
  const Floats by = hn::Set(FloatTag(), delta);
  for_each_part(count, [&](int64_t i, int64_t part) HWY_ATTR {
    const Floats difference = hn::Sub(load_part(dprobabilities + i, part), by);
    store_part(hn::Mul(load_part(probabilities + i, part), difference), dprobabilities + i, part);
  });
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
  constexpr int64_t kLine = 16;  // floats of a cache line: written whole before the next
  for (int64_t line = 0; line < whole_rows; line += kLine)
    for (int64_t col = 0; col < whole_cols; col += kBlock)
      for (int64_t row = line; row < std::min(line + kLine, whole_rows); row += kBlock)
        transpose_one(from + row * from_stride + col, from_stride, to + col * to_stride + row, to_stride);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = row < whole_rows ? whole_cols : 0; col < cols; ++col)
      to[col * to_stride + row] = from[row * from_stride + col];
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

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

}  // namespace

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
