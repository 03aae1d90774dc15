// SPDX-License-Identifier: Apache-2.0
// Stored values as f32: what checkpoints keep, whatever the storage. f32 is handed on where it lies, bf16 is widened
// (exactly) in pieces. Any thread.
#pragma once

#include <functional>
#include <span>

#include "strata/tensor/tensor.h"

namespace strata {

// `sink` gets all of the `count` values in order, each piece with the index of its first one.
using F32Sink = std::function<void(int64_t first, std::span<const float> values)>;
void read_as_f32(const std::byte* values, DType dtype, int64_t count, const F32Sink& sink);

}  // namespace strata
