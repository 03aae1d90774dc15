// SPDX-License-Identifier: Apache-2.0
// How the ranks of a stage share a micro-batch in a layer: dp of them its samples, and cp the tokens of every sample
// (context_pieces.h). Layers may share it differently. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/spec/plan.h"

namespace strata {

struct TokenSplit {
  int64_t dp = 1;
  int64_t cp = 1;
  bool operator==(const TokenSplit&) const = default;
};

// One rank's share of it: the samples of data-parallel rank `data`, and context rank `context`'s tokens of them.
struct TokenShare {
  TokenSplit split;
  int64_t data = 0;
  int64_t context = 0;
  bool operator==(const TokenShare&) const = default;
};
// Of rank `index` of a stage of `stage_ranks`: those that share nothing (tensor-parallel ranks) stand side by side.
TokenShare token_share(const TokenSplit& split, int64_t stage_ranks, int64_t index);

TokenSplit token_split(const LayerPlan& layer);
// As attention's core shares it: its context ranks may share heads instead.
TokenSplit core_split(const LayerPlan& layer);
// The different ones of a plan's layers and cores, in the order in which they first occur.
std::vector<TokenSplit> token_splits(const Plan& plan);
// The place of a split in token_splits().
int token_split_index(const Plan& plan, const TokenSplit& split);

// Samples of a micro-batch over all ranks of a stage, and of one data-parallel rank.
int64_t stage_samples(const Plan& plan);
int64_t rank_samples(const Plan& plan, const TokenSplit& split);

// Rows (tokens) that two ranks have both, in the order of the first's memory and as long as possible.
struct CommonRows {
  int64_t first = 0;   // row of the first rank
  int64_t second = 0;  // of the second
  int64_t count = 0;
  bool operator==(const CommonRows&) const = default;
};
// `lengths` are those of the micro-batch's sequences over all ranks of the stage; a full one has `samples`.
std::vector<CommonRows> common_rows(std::span<const int64_t> lengths, int64_t samples, const TokenShare& first,
                                    const TokenShare& second);

}  // namespace strata
