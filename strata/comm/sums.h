// SPDX-License-Identifier: Apache-2.0
// The one way in which ranks' values are added, whatever moved them: in the order of `parts`, f32 and bf16 in f32, f64
// in f64, rounded once. An element's sum depends on nothing but its own values: not on where its buffer was cut, nor on
// the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "strata/tensor/tensor.h"

namespace strata {

// result[i] = parts[0][i] + parts[1][i] + ... for `elements` of dtype (f32, bf16 or f64). `result` may be one of the
// parts; it must not overlap one in another way.
void sum_parts(DType dtype, std::span<const std::byte* const> parts, std::byte* result, int64_t elements);

}  // namespace strata
