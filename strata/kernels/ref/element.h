// SPDX-License-Identifier: Apache-2.0
// One element of a float view as a double, whatever its storage: for the plain loops of this folder.
#pragma once

#include "strata/tensor/tensor.h"

namespace strata::kernels::ref {

inline double read_element(const TensorView& view, int64_t row, int64_t col) {
  return view.dtype == DType::kBF16 ? to_float(view.row<BF16>(row)[col]) : view.row<float>(row)[col];
}

inline void write_element(const TensorView& view, int64_t row, int64_t col, double value) {
  if (view.dtype == DType::kBF16)
    view.row<BF16>(row)[col] = to_bf16(static_cast<float>(value));
  else
    view.row<float>(row)[col] = static_cast<float>(value);
}

}  // namespace strata::kernels::ref
