// SPDX-License-Identifier: Apache-2.0
// Random initial weights: every element depends on the seed, its tensor's name and its place in the whole tensor only,
// never on plan or rank. Biases 0, norms 1, matrices normal with the model's init_std; projections back into the
// residual stream are scaled by 1/sqrt(2 * blocks) (Radford et al., GPT-2).
#pragma once

#include "strata/exec/executor.h"

namespace strata {

void initialize_parameters(const ModelSpec& model, const std::vector<LayerDecl>& layers, uint64_t seed,
                           Executor& executor, Team& team);

// Fills one parameter (rows x cols, f32) as above.
void initialize_parameter(const ParameterDecl& parameter, const ModelSpec& model, uint64_t seed, const TensorView& out,
                          Team& team);

// Rounds the master copy of every parameter into its compute copy; nothing to do in f32.
void round_parameters(const std::vector<LayerDecl>& layers, Executor& executor, Team& team);

}  // namespace strata
