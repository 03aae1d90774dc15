// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/comm/sums.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/tensor/vector_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// One vector of sums at `index`; the parts are added while the sum is in a register.
template <class D, typename T>
HWY_INLINE void sum_vector(D d, const std::byte* const* parts, size_t num_parts, T* result, int64_t index) {
  auto sum = load(d, reinterpret_cast<const T*>(parts[0]) + index);
  for (size_t part = 1; part < num_parts; ++part)
    sum = hn::Add(sum, load(d, reinterpret_cast<const T*>(parts[part]) + index));
  store(d, sum, result + index);
}

template <typename Computed, typename T>
void sum_elements(const std::byte* const* parts, size_t num_parts, std::byte* result, int64_t elements) {
  const hn::ScalableTag<Computed> d;
  const hn::CappedTag<Computed, 1> single;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  T* const to = reinterpret_cast<T*>(result);
  int64_t i = 0;
  if (num_parts == 2)  // a constant, so that the loop over the parts is gone
    for (; i + lanes <= elements; i += lanes) sum_vector(d, parts, 2, to, i);
  for (; i + lanes <= elements; i += lanes) sum_vector(d, parts, num_parts, to, i);
  for (; i < elements; ++i) sum_vector(single, parts, num_parts, to, i);
}

void sum_f32(const std::byte* const* parts, size_t num_parts, std::byte* result, int64_t elements) {
  sum_elements<float, float>(parts, num_parts, result, elements);
}
void sum_bf16(const std::byte* const* parts, size_t num_parts, std::byte* result, int64_t elements) {
  sum_elements<float, BF16>(parts, num_parts, result, elements);
}
void sum_f64(const std::byte* const* parts, size_t num_parts, std::byte* result, int64_t elements) {
  sum_elements<double, double>(parts, num_parts, result, elements);
}

}  // namespace
}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
namespace {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_bf16);
HWY_EXPORT(sum_f64);

}  // namespace

void sum_parts(DType dtype, std::span<const std::byte* const> parts, std::byte* result, int64_t elements) {
  switch (dtype) {
    case DType::kF32: return HWY_DYNAMIC_DISPATCH(sum_f32)(parts.data(), parts.size(), result, elements);
    case DType::kBF16: return HWY_DYNAMIC_DISPATCH(sum_bf16)(parts.data(), parts.size(), result, elements);
    case DType::kF64: return HWY_DYNAMIC_DISPATCH(sum_f64)(parts.data(), parts.size(), result, elements);
    default: break;
  }
  STRATA_CHECK(false, "values of {} are not summed: f32, bf16 or f64", dtype_name(dtype));
}

}  // namespace strata
#endif
