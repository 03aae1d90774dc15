// SPDX-License-Identifier: Apache-2.0
// Rotary positions. Angles are kept as fractions of a turn in 64-bit integers: position times turns per position wraps
// by itself, so the angle is right to 2^-32 turns at any position.
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <cmath>
#include <numbers>

#include "strata/kernels/cpu/simd-inl.h"
#include "strata/kernels/cpu/simd_math-inl.h"

#ifndef STRATA_KERNELS_CPU_ROPE_TABLE
#define STRATA_KERNELS_CPU_ROPE_TABLE
namespace strata::kernels {

constexpr int64_t kMaxPairs = 256;

struct RopeTable {
  std::array<uint64_t, kMaxPairs> turns;  // per position and pair, in units of 2^-64
  int64_t pairs = 0;
  int64_t turned_heads = 0;
  int direction = 1;
};

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

struct Rotation {
  alignas(64) float cosine[kMaxPairs];
  alignas(64) float sine[kMaxPairs];
};

HWY_INLINE void fill_rotation(const RopeTable& table, int32_t position, Rotation& rotation) {
  alignas(64) uint32_t phase[kMaxPairs];
  const auto steps = static_cast<uint64_t>(static_cast<int64_t>(position) * table.direction);
  for (int64_t i = 0; i < table.pairs; ++i) phase[i] = static_cast<uint32_t>(steps * table.turns[i] >> 32);
  for_each_vector(table.pairs, [&](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<uint32_t, decltype(d)> words;
    const auto turned = sine_cosine(d, hn::LoadU(words, phase + i));
    store(d, turned.cosine, rotation.cosine + i);
    store(d, turned.sine, rotation.sine + i);
  });
}

template <typename T>
void rotate_rows_of(const RopeTable& table, const int32_t* positions, const TensorView& qkv, int64_t begin,
                    int64_t end) {
  Rotation rotation;
  for (int64_t row = begin; row < end; ++row) {
    fill_rotation(table, positions[row], rotation);
    for (int64_t head = 0; head < table.turned_heads; ++head) {
      T* first = qkv.row<T>(row) + 2 * head * table.pairs;
      T* second = first + table.pairs;
      for_each_vector(table.pairs, [&](auto d, int64_t i) HWY_ATTR {
        const auto a = load(d, first + i), b = load(d, second + i);
        const auto cosine = hn::LoadU(d, rotation.cosine + i), sine = hn::LoadU(d, rotation.sine + i);
        store(d, hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), first + i);
        store(d, hn::MulAdd(a, sine, hn::Mul(b, cosine)), second + i);
      });
    }
  }
}

void rotate_rows(const RopeTable& table, const int32_t* positions, const TensorView& qkv, int64_t begin, int64_t end) {
  qkv.dtype == DType::kBF16 ? rotate_rows_of<BF16>(table, positions, qkv, begin, end)
                            : rotate_rows_of<float>(table, positions, qkv, begin, end);
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(rotate_rows);

RopeTable make_table(const RopeArgs& args) {
  RopeTable table = {
      .turns = {}, .pairs = args.head_dim / 2, .turned_heads = args.heads + args.kv_heads, .direction = args.direction};
  for (int64_t i = 0; i < table.pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.head_dim);
    const double turns = std::pow(static_cast<double>(args.theta), exponent) / (2.0 * std::numbers::pi);
    table.turns[i] = static_cast<uint64_t>(std::ldexp(turns, 64));
  }
  return table;
}

}  // namespace

void rope(const Context& context, const RopeArgs& args, std::span<const int32_t> positions, const TensorView& qkv) {
  check_storage("qkv", qkv);
  check_view("qkv", qkv, qkv.rows, (args.heads + 2 * args.kv_heads) * args.head_dim, qkv.dtype);
  STRATA_CHECK(static_cast<int64_t>(positions.size()) == qkv.rows, "{} positions for {} tokens", positions.size(),
               qkv.rows);
  STRATA_CHECK(args.head_dim % 2 == 0 && args.head_dim <= 2 * kMaxPairs, "head_dim {} must be even and at most {}",
               args.head_dim, 2 * kMaxPairs);
  STRATA_CHECK(args.theta >= 1.0f && (args.direction == 1 || args.direction == -1), "theta {}, direction {}",
               args.theta, args.direction);
  const RopeTable table = make_table(args);
  for_row_parts(context.team, qkv.rows, qkv.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate_rows)(table, positions.data(), qkv, begin, end);
  });
}

}  // namespace strata::kernels
#endif
