// SPDX-License-Identifier: Apache-2.0
// The order function of the compiler: which micro-batch goes forward or backward next on a stage, and through which of
// the stage's layer ranges (its virtual stages in model order; with layered, their single layers). Every order runs
// each part of each micro-batch through each range once, and gradients of a range always in the order of micro-batches:
// orders differ in time and memory, and a layer's gradient is the same to the last bit. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/spec/plan.h"

namespace strata {

// kBackward is both parts of backward, one layer after the other.
enum class Work : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct ScheduleItem {
  int micro_batch = 0;
  int range = 0;  // of the stage's layer ranges
  Work work = Work::kForward;
  bool operator==(const ScheduleItem&) const = default;
};

// GPipe (Huang et al., 2019): all forwards, then all backwards.
std::vector<ScheduleItem> gpipe(int64_t num_micro_batches);

// One-forward-one-backward (PipeDream-Flush; Narayanan et al., 2021): stage s of p runs min(p - 1 - s, m) forwards
// ahead, then alternates, then drains. With one stage: forward and backward of each micro-batch in turn.
std::vector<ScheduleItem> one_forward_one_backward(int64_t stage, int64_t num_stages, int64_t num_micro_batches);

// Interleaved one-forward-one-backward (Narayanan et al., 2021): groups of p micro-batches go through all ranges of a
// stage, 2 (p - 1 - s) + (v - 1) p forwards ahead. Micro-batches are a multiple of p.
std::vector<ScheduleItem> interleaved(int64_t stage, int64_t num_stages, int64_t num_ranges, int64_t num_micro_batches);

// Breadth first (Lamy-Poirier, 2023): all micro-batches through one range before the next, forward and backward. With
// ranges of one layer: layered gradient accumulation on modular placement (Lamy-Poirier, 2021).
std::vector<ScheduleItem> breadth_first(int64_t num_ranges, int64_t num_micro_batches);

// Zero bubble, ZB-H1 (Qi et al., 2023): one-forward-one-backward with the input part of backward only; the weight part
// follows s backwards later on stage s, so that every stage holds p micro-batches and none waits after its first
// backward.
std::vector<ScheduleItem> zero_bubble(int64_t stage, int64_t num_stages, int64_t num_micro_batches);

struct PipelineShape {
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  int64_t num_stages = 1;
  int64_t num_micro_batches = 1;
};
// The plan's order on one stage with its number of ranges.
std::vector<ScheduleItem> schedule(const PipelineShape& shape, int64_t stage, int64_t num_ranges);

}  // namespace strata
