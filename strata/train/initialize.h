// SPDX-License-Identifier: Apache-2.0
// Random initial weights: every element depends on the seed, its tensor's name and its place in the whole tensor only,
// never on plan or rank. Biases 0, norms 1, matrices normal with the model's init_std; projections back into the
// residual stream are scaled by 1/sqrt(2 * blocks) (Radford et al., GPT-2).
#pragma once

#include "strata/ckpt/states_in_memory.h"
#include "strata/device/cpu/team.h"

namespace strata {

// Fills the parameters that the rank holds and, in bf16, the masters that it owns.
void initialize_parameters(const StatesInMemory& states, uint64_t seed, Team& team);

}  // namespace strata
