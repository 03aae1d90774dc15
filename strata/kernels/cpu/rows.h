// SPDX-License-Identifier: Apache-2.0
// Vector loops over one row of floats, for the products of this folder; the widest instructions of the CPU are chosen
// at run time. No alignment is assumed. Any thread. NaN in, NaN out.
#pragma once

#include <cstdint>

#include "strata/tensor/tensor.h"

namespace strata::kernels {

void widen_row(const BF16* from, float* to, int64_t count);
// Rounds to nearest even, like to_bf16. `to` may be the start of `from`.
void narrow_row(const float* from, BF16* to, int64_t count);

// to += from
void add_row(const float* from, float* to, int64_t count);
void add_row(const BF16* from, float* to, int64_t count);

// to *= from
void multiply_row(const float* from, float* to, int64_t count);
void scale_row(float* row, int64_t count, float factor);
float dot_row(const float* a, const float* b, int64_t count);
// The largest element; -infinity for none.
float max_row(const float* row, int64_t count);

// Sum of exp(row - shift). Exponentials below the smallest normal number become that number.
float sum_exp_row(const float* row, int64_t count, float shift);
// row = exp(row - shift); returns the sum.
float exp_row(float* row, int64_t count, float shift);
// row = factor * exp(row - shift)
void scaled_exp_row(float* row, int64_t count, float shift, float factor);

// The gradient of a softmax: dscores = probabilities * (dprobabilities - delta), in place of dprobabilities.
void softmax_gradient_row(const float* probabilities, float* dprobabilities, int64_t count, float delta);

// to (cols, rows) = transpose of from (rows, cols); strides in elements.
void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float* to, int64_t to_stride);

}  // namespace strata::kernels
