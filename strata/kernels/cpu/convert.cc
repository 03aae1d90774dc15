// SPDX-License-Identifier: Apache-2.0
// Copies between f32 and bf16.
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

template <typename From, typename To>
void convert_elements(const From* from, To* to, int64_t count) {
  for_each_vector(count, [&](auto d, int64_t i) HWY_ATTR { store(d, load(d, from + i), to + i); });
}

void widen(const BF16* from, float* to, int64_t count) { convert_elements(from, to, count); }
void narrow(const float* from, BF16* to, int64_t count) { convert_elements(from, to, count); }

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace strata::kernels {
namespace {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

// Elements [begin, end) of one row.
void convert_part(const TensorView& from, const TensorView& to, int64_t row, int64_t begin, int64_t end) {
  if (from.dtype == to.dtype)
    std::memcpy(to.slice_cols(begin, end - begin).row_bytes(row), from.slice_cols(begin, end - begin).row_bytes(row),
                static_cast<size_t>((end - begin) * dtype_bytes(from.dtype)));
  else if (from.dtype == DType::kBF16)
    HWY_DYNAMIC_DISPATCH(widen)(from.row<BF16>(row) + begin, to.row<float>(row) + begin, end - begin);
  else
    HWY_DYNAMIC_DISPATCH(narrow)(from.row<float>(row) + begin, to.row<BF16>(row) + begin, end - begin);
}

TensorView flat(const TensorView& view) { return {view.data, view.dtype, 1, view.num_elements()}; }

}  // namespace

void convert(const Context& context, const TensorView& from, const TensorView& to) {
  check_storage("convert from", from);
  check_storage("convert to", to);
  check_view("convert to", to, from.rows, from.cols, to.dtype);
  if (from.contiguous() && to.contiguous()) {
    context.team.parallel_for(from.num_elements(), kMinPartElements,
                              [&](int64_t begin, int64_t end) { convert_part(flat(from), flat(to), 0, begin, end); });
    return;
  }
  for_row_parts(context.team, from.rows, from.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) convert_part(from, to, row, 0, from.cols);
  });
}

}  // namespace strata::kernels
#endif
