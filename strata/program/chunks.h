// SPDX-License-Identifier: Apache-2.0
// Which parameters of a stage lie together, and how each chunk is split over the ranks that hold it. Pure.
#pragma once

#include <vector>

#include "strata/program/program.h"

namespace strata {

// Consecutive layers of one stage that a micro-batch goes through in one go: a virtual stage or, in the layered order,
// one layer of it.
struct LayerRange {
  int64_t stage = 0;
  int first_layer = 0, end_layer = 0;
};
// Of all stages, in model order.
std::vector<LayerRange> layer_ranges(const Plan& plan);

// Where a rank stands: world = stages x dp x cp x tp, tp innermost.
struct RankPlace {
  int64_t stage = 0, data = 0, context = 0, tensor = 0;
  int64_t tp = 1, cp = 1, dp = 1, stages = 1;
  std::vector<LayerRange> ranges;  // of the stage, in model order
  bool holds(int layer) const;
  int global_rank(int64_t other_stage, int64_t other_data, int64_t other_context, int64_t other_tensor) const {
    return static_cast<int>(((other_stage * dp + other_data) * cp + other_context) * tp + other_tensor);
  }
  // The rank at this place of another stage.
  int rank_of_stage(int64_t other_stage) const { return global_rank(other_stage, data, context, tensor); }
};
// Throws Error when layers of the plan differ in tp, cp or dp (a reshard between layers is not supported).
RankPlace place_of_rank(const Plan& plan, int rank);

std::vector<Chunk> make_chunks(const std::vector<LayerDecl>& layers, const Plan& plan, int rank);

}  // namespace strata
