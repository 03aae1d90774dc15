// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/optimizer_state.h"

#include <algorithm>

namespace strata {

std::vector<std::string_view> optimizer_states(const OptimizerConfig& optimizer, Precision precision) {
  std::vector<std::string_view> states;
  if (precision == Precision::kBF16) states.push_back("master");
  if (optimizer.kind == OptimizerKind::kAdamW) {
    states.push_back("exp_avg");
    states.push_back("exp_avg_sq");
  } else if (optimizer.momentum != 0.0) {
    states.push_back("momentum");
  }
  return states;
}

int state_index(const std::vector<std::string_view>& states, std::string_view name) {
  const auto found = std::find(states.begin(), states.end(), name);
  return found == states.end() ? -1 : static_cast<int>(found - states.begin());
}

}  // namespace strata
