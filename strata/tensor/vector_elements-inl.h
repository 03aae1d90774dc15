// SPDX-License-Identifier: Apache-2.0
// Vectors from and to stored elements: as they are, or bf16 as the f32 they stand for. Included once per target, inside
// foreach_target.

#if defined(STRATA_TENSOR_VECTOR_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_TENSOR_VECTOR_ELEMENTS_INL_H_
#undef STRATA_TENSOR_VECTOR_ELEMENTS_INL_H_
#else
#define STRATA_TENSOR_VECTOR_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "strata/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BF16* from) {
  const hn::Rebind<uint16_t, D> half;
  const hn::Rebind<uint32_t, D> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}

template <class D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> value, T* to) {
  hn::StoreU(value, d, to);
}

// Rounds to nearest even; NaN stays a quiet NaN (as to_bf16).
template <class D>
HWY_INLINE void store(D, hn::Vec<D> value, BF16* to) {
  const hn::Rebind<uint16_t, D> half;
  const hn::Rebind<uint32_t, D> whole;
  const hn::Rebind<int32_t, D> whole_signed;
  const auto bits = hn::BitCast(whole, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto bias = hn::Add(hn::And(upper, hn::Set(whole, 1)), hn::Set(whole, 0x7fff));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  const auto quiet = hn::Or(upper, hn::Set(whole, 0x40));
  const auto result = hn::IfThenElse(hn::RebindMask(whole, hn::IsNaN(value)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(whole_signed, result)), half, reinterpret_cast<uint16_t*>(to));
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_TENSOR_VECTOR_ELEMENTS_INL_H_
