// SPDX-License-Identifier: Apache-2.0
// Which parameters of a stage lie together, and how each chunk is split over the ranks that hold it. Pure.
#pragma once

#include <vector>

#include "strata/program/program.h"

namespace strata {

// Where a rank stands: world = stages x dp x tp, tp innermost.
struct RankPlace {
  int64_t stage = 0, data = 0, tensor = 0;
  int64_t tp = 1, dp = 1, stages = 1;
  int first_layer = 0, end_layer = 0;  // layers of the stage
  int global_rank(int64_t other_stage, int64_t other_data, int64_t other_tensor) const {
    return static_cast<int>((other_stage * dp + other_data) * tp + other_tensor);
  }
};
// Throws Error when layers of the plan differ in tp (a reshard between layers is not supported).
RankPlace place_of_rank(const Plan& plan, int rank);

// Local shape of a parameter on a tensor-parallel rank.
int64_t local_rows(const ParameterDecl& parameter, int64_t tp);
int64_t local_cols(const ParameterDecl& parameter, int64_t tp);

std::vector<Chunk> make_chunks(const std::vector<LayerDecl>& layers, const Plan& plan, int rank);

}  // namespace strata
