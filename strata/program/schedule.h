// SPDX-License-Identifier: Apache-2.0
// The order function of the compiler: which micro-batch goes forward or backward next on a stage. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

struct ScheduleItem {
  int micro_batch = 0;
  bool backward = false;
  bool operator==(const ScheduleItem&) const = default;
};

// One-forward-one-backward (PipeDream-Flush; Narayanan et al., ICML'21): stage s of p runs min(p - 1 - s, m) forwards
// ahead, then alternates, then drains. With one stage: forward and backward of each micro-batch in turn.
std::vector<ScheduleItem> one_forward_one_backward(int64_t stage, int64_t num_stages, int64_t num_micro_batches);

}  // namespace strata
