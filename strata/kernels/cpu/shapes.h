// SPDX-License-Identifier: Apache-2.0
// Shape checks and the split of rows over the team, shared by the CPU kernels. A mismatch is a bug and aborts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "strata/device/cpu/team.h"
#include "strata/tensor/tensor.h"

namespace strata::kernels {

// `view` must be (rows, cols) of `dtype`.
inline void check_view(const char* name, const TensorView& view, int64_t rows, int64_t cols, DType dtype) {
  STRATA_CHECK(view.rows == rows && view.cols == cols && view.dtype == dtype, "{} is ({}, {}) {}, want ({}, {}) {}",
               name, view.rows, view.cols, dtype_name(view.dtype), rows, cols, dtype_name(dtype));
}

// Storage of activations and weights.
inline void check_storage(const char* name, const TensorView& view) {
  STRATA_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16, "{} holds {}, want f32 or bf16", name,
               dtype_name(view.dtype));
}

// Fewer elements than this are not worth waking another thread for.
inline constexpr int64_t kMinPartElements = 8192;

// Parts of this many rows (or columns) of `width` elements each: enough work, on a multiple of `multiple`.
inline int64_t part_grain(int64_t width, int64_t multiple) {
  const int64_t units = std::max<int64_t>(1, kMinPartElements / std::max<int64_t>(1, width * multiple));
  return units * multiple;
}

// body(begin, end) over the rows of a (rows, cols) operation.
template <typename Body>
void for_row_parts(Team& team, int64_t rows, int64_t cols, Body&& body) {
  team.parallel_for(rows, part_grain(cols, 1), body);
}

}  // namespace strata::kernels
