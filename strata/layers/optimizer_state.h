// SPDX-License-Identifier: Apache-2.0
// What each optimizer keeps per parameter element, all f32: drives memory, sharding and checkpoints. The unit that an
// optimizer must see whole is one element for both, so shard borders may fall anywhere. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "strata/spec/train_config.h"

namespace strata {

// In order: "master" (only in bf16, where the parameter itself is rounded), then "exp_avg", "exp_avg_sq" (AdamW)
// or "momentum" (SGD with momentum).
std::vector<std::string_view> optimizer_states(const OptimizerConfig& optimizer, Precision precision);

// Index of a state in the list above, -1 when absent.
int state_index(const std::vector<std::string_view>& states, std::string_view name);

}  // namespace strata
