// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/token_split.h"

#include <algorithm>

#include "strata/base/error.h"
#include "strata/spec/context_pieces.h"

namespace strata {
namespace {

// Consecutive tokens of a sequence that a rank has, from row `row` on.
struct Run {
  int64_t sequence = 0;
  TokenRange tokens;
  int64_t row = 0;
};

std::vector<Run> runs_of(std::span<const int64_t> lengths, int64_t samples, const TokenShare& share) {
  const int64_t per_rank = samples / share.split.dp, present = static_cast<int64_t>(lengths.size());
  std::vector<Run> runs;
  int64_t row = 0;
  for (int64_t index = share.data * per_rank; index < std::min((share.data + 1) * per_rank, present); ++index)
    for (const TokenRange& piece : context_pieces(lengths[static_cast<size_t>(index)], share.split.cp, share.context)) {
      if (piece.count == 0) continue;
      runs.push_back({index, piece, row});
      row += piece.count;
    }
  return runs;
}

void add_common(const Run& a, const Run& b, std::vector<CommonRows>& common) {
  const int64_t begin = std::max(a.tokens.begin, b.tokens.begin);
  const int64_t end = std::min(a.tokens.begin + a.tokens.count, b.tokens.begin + b.tokens.count);
  if (begin >= end) return;
  const CommonRows rows{a.row + begin - a.tokens.begin, b.row + begin - b.tokens.begin, end - begin};
  if (!common.empty() && common.back().first + common.back().count == rows.first &&
      common.back().second + common.back().count == rows.second) {
    common.back().count += rows.count;
    return;
  }
  common.push_back(rows);
}

}  // namespace

TokenShare token_share(const TokenSplit& split, int64_t stage_ranks, int64_t index) {
  const int64_t alike = stage_ranks / (split.dp * split.cp);
  return {split, index / (alike * split.cp), index / alike % split.cp};
}

TokenSplit token_split(const LayerPlan& layer) { return {layer.dp, layer.cp}; }

TokenSplit core_split(const LayerPlan& layer) { return {layer.dp, shares_heads(layer) ? 1 : layer.cp}; }

std::vector<TokenSplit> token_splits(const Plan& plan) {
  std::vector<TokenSplit> splits;
  for (const LayerPlan& layer : plan.layers)
    for (const TokenSplit& split : {token_split(layer), core_split(layer)})
      if (std::find(splits.begin(), splits.end(), split) == splits.end()) splits.push_back(split);
  return splits;
}

int token_split_index(const Plan& plan, const TokenSplit& split) {
  const std::vector<TokenSplit> splits = token_splits(plan);
  const auto found = std::find(splits.begin(), splits.end(), split);
  STRATA_CHECK(found != splits.end(), "no layer has dp {} and cp {}", split.dp, split.cp);
  return static_cast<int>(found - splits.begin());
}

int64_t stage_samples(const Plan& plan) { return plan.micro_batch * plan.layers.front().dp; }

int64_t rank_samples(const Plan& plan, const TokenSplit& split) { return stage_samples(plan) / split.dp; }

std::vector<CommonRows> common_rows(std::span<const int64_t> lengths, int64_t samples, const TokenShare& first,
                                    const TokenShare& second) {
  const std::vector<Run> runs = runs_of(lengths, samples, second);
  std::vector<CommonRows> common;
  auto from = runs.begin();
  for (const Run& run : runs_of(lengths, samples, first)) {
    while (from != runs.end() && from->sequence < run.sequence) ++from;
    for (auto other = from; other != runs.end() && other->sequence == run.sequence; ++other)
      add_common(run, *other, common);
  }
  return common;
}

}  // namespace strata
