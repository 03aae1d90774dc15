// SPDX-License-Identifier: Apache-2.0
// Dropout alone and fused with the residual addition.
#include "strata/kernels/cpu/dropout_state.h"
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/kernels/cpu/dropout-inl.h"
#include "strata/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void drop_rows_of(const DropoutState& state, const TensorView& x, const TensorView& y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = x.row<T>(row);
    T* to = y.row<T>(row);
    for_each_dropped(state, row, x.cols, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      store(d, hn::Mul(load(d, from + c), factor), to + c);
    });
  }
}

template <typename T>
void drop_add_rows_of(const DropoutState& state, const TensorView& x, const TensorView& residual, const TensorView& y,
                      int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = x.row<T>(row);
    const T* base = residual.row<T>(row);
    T* to = y.row<T>(row);
    for_each_dropped(state, row, x.cols, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      store(d, hn::MulAdd(load(d, from + c), factor, load(d, base + c)), to + c);
    });
  }
}

void drop_rows(const DropoutState& state, const TensorView& x, const TensorView& y, int64_t begin, int64_t end) {
  x.dtype == DType::kBF16 ? drop_rows_of<BF16>(state, x, y, begin, end) : drop_rows_of<float>(state, x, y, begin, end);
}

void drop_add_rows(const DropoutState& state, const TensorView& x, const TensorView& residual, const TensorView& y,
                   int64_t begin, int64_t end) {
  x.dtype == DType::kBF16 ? drop_add_rows_of<BF16>(state, x, residual, y, begin, end)
                          : drop_add_rows_of<float>(state, x, residual, y, begin, end);
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(drop_rows);
HWY_EXPORT(drop_add_rows);

}  // namespace

void dropout(const Context& context, const Dropout& dropout, const TensorView& x, const TensorView& y) {
  check_storage("dropout x", x);
  check_view("dropout y", y, x.rows, x.cols, x.dtype);
  const DropoutState state = make_dropout_state(dropout, x.rows);
  if (state.threshold == 0 && x.data == y.data) return;
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(drop_rows)(state, x, y, begin, end);
  });
}

void add_residual(const Context& context, const Dropout& dropout, const TensorView& x, const TensorView& residual,
                  const TensorView& y) {
  check_storage("residual x", x);
  check_view("residual", residual, x.rows, x.cols, x.dtype);
  check_view("residual y", y, x.rows, x.cols, x.dtype);
  const DropoutState state = make_dropout_state(dropout, x.rows);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(drop_add_rows)(state, x, residual, y, begin, end);
  });
}

}  // namespace strata::kernels
#endif
