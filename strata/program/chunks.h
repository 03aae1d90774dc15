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

// Where a rank stands in its stage in one layer: stage = dp x cp x tp, tp innermost.
struct LayerPlace {
  int64_t data = 0, context = 0, tensor = 0;
  int64_t tp = 1, cp = 1, dp = 1;
  int64_t first_rank = 0;  // of the stage
  int rank(int64_t other_data, int64_t other_context, int64_t other_tensor) const {
    return static_cast<int>(first_rank + (other_data * cp + other_context) * tp + other_tensor);
  }
  bool operator==(const LayerPlace&) const = default;
};

// Where a rank stands: world = stages x ranks of a stage.
struct RankPlace {
  int64_t stage = 0, stages = 1;
  int64_t index = 0, stage_ranks = 1;  // in the stage
  std::vector<LayerRange> ranges;      // of the stage, in model order
  std::vector<LayerPlace> layers;      // in all layers of the model, as if the stage held them
  bool holds(int layer) const;
  // The rank at this place of another stage.
  int rank_of_stage(int64_t other_stage) const { return static_cast<int>(other_stage * stage_ranks + index); }
};
RankPlace place_of_rank(const Plan& plan, int rank);

std::vector<Chunk> make_chunks(const std::vector<LayerDecl>& layers, const Plan& plan, int rank);

}  // namespace strata
