// SPDX-License-Identifier: Apache-2.0
// The optimizer on what one rank owns of a chunk: squared norms, the clip factor, and the update itself. Works tensor
// by tensor so that decay groups, padding and shard borders are respected. Complete on return; called by the thread
// that owns the team.
#pragma once

#include <span>
#include <vector>

#include "strata/kernels/kernels.h"
#include "strata/layers/optimizer_state.h"
#include "strata/spec/step_scalars.h"

namespace strata {

// The part of one parameter tensor that this rank owns, as contiguous elements.
struct OwnedRange {
  int64_t gradient_begin = 0;   // element in the gradient buffer
  int64_t parameter_begin = 0;  // element in the parameter buffer
  int64_t state_begin = 0;      // element in each state buffer
  int64_t count = 0;
  float decay = 0;
  int tensor = 0;  // index among all chunk tensors of the rank: place of its norm
};

// norms[tensor] = sum of squares of its owned gradient; notes the first non-finite one in `scalars`.
void measure_norms(const kernels::Context& context, std::span<const OwnedRange> ranges, const float* gradient,
                   std::span<double> norms, StepScalars& scalars);

// Finite flag and the factor min(1, clip_norm / norm), from the sums above.
void finish_norm(StepScalars& scalars);

struct UpdateBuffers {
  const float* gradient = nullptr;
  std::byte* parameters = nullptr;  // storage precision
  std::vector<float*> states;       // in the order of optimizer_states()
};
void update_parameters(const kernels::Context& context, const OptimizerConfig& optimizer, Precision precision,
                       const StepScalars& scalars, std::span<const OwnedRange> ranges, const UpdateBuffers& buffers);

}  // namespace strata
