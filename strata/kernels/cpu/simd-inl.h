// SPDX-License-Identifier: Apache-2.0
// f32 vectors over f32 or bf16 storage, for the per-target parts of the CPU kernels. Included once per target, inside
// foreach_target. Element functions run on full vectors and then one element at a time with the same operations, so a
// value does not depend on where its row was cut. Fused multiply-adds are written out: nothing is left to contract.

#if defined(STRATA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_SIMD_INL_H_
#undef STRATA_KERNELS_CPU_SIMD_INL_H_
#else
#define STRATA_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "strata/tensor/vector_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

using strata::HWY_NAMESPACE::load;
using strata::HWY_NAMESPACE::store;

// body(tag, index) over [0, count): whole vectors, then single elements.
template <class Body>
HWY_INLINE void for_each_vector(int64_t count, const Body& body) {
  const FloatTag d;
  const hn::CappedTag<float, 1> single;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i);
  for (; i < count; ++i) body(single, i);
}

// The sum of term(tag, index) over [0, count), in four vectors of partial sums.
template <class Term>
HWY_INLINE float sum_over(int64_t count, const Term& term) {
  const FloatTag d;
  const hn::CappedTag<float, 1> single;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(d, i));
    sum1 = hn::Add(sum1, term(d, i + lanes));
    sum2 = hn::Add(sum2, term(d, i + 2 * lanes));
    sum3 = hn::Add(sum3, term(d, i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, term(d, i));
  float rest = 0.0f;
  for (; i < count; ++i) rest += hn::GetLane(term(single, i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)))) + rest;
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_KERNELS_CPU_SIMD_INL_H_
