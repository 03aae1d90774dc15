// SPDX-License-Identifier: Apache-2.0
// The small table of numbers that a step's instructions read and write. The step loop fills the inputs before the
// program runs and reads the results after; nothing else decides anything while it runs.
#pragma once

#include <cstdint>

namespace strata {

struct StepScalars {
  // Inputs.
  uint64_t seed = 0;
  int64_t step = 0;         // 1-based; keys dropout
  int64_t update_step = 1;  // 1-based count of updates, without skipped steps: Adam's bias correction
  double learning_rate = 0;
  double counted = 0;    // targets of the global batch: normalises the loss
  double clip_norm = 0;  // 0: no clipping
  bool training = true;  // false switches dropout off
  // Results.
  double loss_sum = 0;            // over counted targets, not normalised
  double norm_squared = 0;        // of the whole gradient, before clipping
  double gradient_scale = 1;      // what clipping multiplies the gradient by
  int64_t first_bad_tensor = -1;  // index among this rank's chunk tensors of the first non-finite gradient
  bool finite = true;             // predicate of the updates
};

}  // namespace strata
