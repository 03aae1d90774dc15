// SPDX-License-Identifier: Apache-2.0
// Model flops of one training step: what mfu divides by time and peak. A product of (m, k) and (k, n) is 2*m*n*k.
// Counted: linear layers and the head over every token, attention over the lower triangle of every sequence, diagonal
// included; of backward, which is twice forward, what frozen tensors leave of it. Not counted: anything computed again,
// embedding look-ups, norms, activations, softmax, optimizer. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/layers/declaration.h"

namespace strata {

// `sequence_lengths`: tokens of every sequence of the global batch; packing does not change the count.
double step_flops(const std::vector<LayerDecl>& layers, std::span<const int64_t> sequence_lengths);

}  // namespace strata
