// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/token_split.h"

#include <gmock/gmock.h>

#include "strata/base/error.h"
#include "strata/spec/context_pieces.h"
#include "strata/spec/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TokenSplit, TensorRanksStandSideBySide) {
  // 12 ranks: 3 groups of samples, 2 of tokens, 2 that share nothing.
  EXPECT_EQ(token_share({3, 2}, 12, 0), (TokenShare{{3, 2}, 0, 0}));
  EXPECT_EQ(token_share({3, 2}, 12, 1), (TokenShare{{3, 2}, 0, 0}));
  EXPECT_EQ(token_share({3, 2}, 12, 2), (TokenShare{{3, 2}, 0, 1}));
  EXPECT_EQ(token_share({3, 2}, 12, 11), (TokenShare{{3, 2}, 2, 1}));
}

TEST(TokenSplit, OfAPlanEachOnce) {
  Plan plan = single_rank_plan(tiny_gpt2(1, false), ActivationPolicy::kKeep, 6, 1, 1);
  plan.layers = {{.tp = 2, .dp = 2}, {.dp = 2, .cp = 2}, {.dp = 4}, {.tp = 2, .dp = 2}};
  EXPECT_THAT(token_splits(plan), ElementsAre(TokenSplit{2, 1}, TokenSplit{2, 2}, TokenSplit{4, 1}));
  EXPECT_EQ(token_split_index(plan, {4, 1}), 2);
  EXPECT_EQ(stage_samples(plan), 12);
  EXPECT_EQ(rank_samples(plan, {4, 1}), 3);
  EXPECT_DEATH(token_split_index(plan, {1, 4}), "no layer has dp 1 and cp 4");
}

// Two samples of 4 and 6 tokens: pieces of cp 2 are 1 1 1 1 and 2 2 1 1.
TEST(CommonRows, OfWholeAndCutSequences) {
  const std::vector<int64_t> lengths = {4, 6};
  const TokenShare all{{1, 1}, 0, 0}, second{{2, 1}, 1, 0}, outer{{1, 2}, 0, 0}, inner{{1, 2}, 0, 1};
  EXPECT_THAT(common_rows(lengths, 2, all, second), ElementsAre(CommonRows{4, 0, 6}));
  EXPECT_THAT(common_rows(lengths, 2, second, outer), ElementsAre(CommonRows{0, 2, 2}, CommonRows{5, 4, 1}));
  EXPECT_THAT(common_rows(lengths, 2, second, inner), ElementsAre(CommonRows{2, 2, 3}));
  EXPECT_THAT(common_rows(lengths, 2, outer, inner), IsEmpty());
  EXPECT_THAT(common_rows(lengths, 2, outer, outer), ElementsAre(CommonRows{0, 0, 5}));
  // A short batch: the second sample is not there.
  EXPECT_THAT(common_rows({lengths.data(), 1}, 2, all, second), IsEmpty());
  EXPECT_THAT(common_rows({lengths.data(), 1}, 2, all, all), ElementsAre(CommonRows{0, 0, 4}));
}

// Token (sequence, position) of every row of a share.
std::vector<std::pair<int64_t, int64_t>> tokens_of(const std::vector<int64_t>& lengths, int64_t samples,
                                                   const TokenShare& share) {
  std::vector<std::pair<int64_t, int64_t>> tokens;
  const int64_t each = samples / share.split.dp;
  for (int64_t sequence = share.data * each; sequence < (share.data + 1) * each; ++sequence)
    if (sequence < static_cast<int64_t>(lengths.size()))
      for (const TokenRange& piece :
           context_pieces(lengths[static_cast<size_t>(sequence)], share.split.cp, share.context))
        for (int64_t token = piece.begin; token < piece.begin + piece.count; ++token)
          tokens.push_back({sequence, token});
  return tokens;
}

TEST(CommonRows, AreTheTokensThatBothHave) {
  const std::vector<int64_t> lengths = {9, 1, 12, 3, 7};  // of up to 6
  const std::vector<TokenSplit> splits = {{1, 1}, {2, 1}, {3, 1}, {6, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 2}, {1, 6}};
  for (const TokenSplit& a : splits)
    for (const TokenSplit& b : splits)
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t j = 0; j < 6; ++j) {
          const TokenShare first = token_share(a, 6, i), second = token_share(b, 6, j);
          const auto mine = tokens_of(lengths, 6, first), theirs = tokens_of(lengths, 6, second);
          std::vector<std::pair<size_t, size_t>> wanted, found;
          for (size_t row = 0; row < mine.size(); ++row)
            for (size_t other = 0; other < theirs.size(); ++other)
              if (mine[row] == theirs[other]) wanted.push_back({row, other});
          for (const CommonRows& run : common_rows(lengths, 6, first, second))
            for (int64_t row = 0; row < run.count; ++row)
              found.push_back({static_cast<size_t>(run.first + row), static_cast<size_t>(run.second + row)});
          ASSERT_EQ(found, wanted) << a.dp << "x" << a.cp << " rank " << i << ", " << b.dp << "x" << b.cp << " " << j;
        }
}

}  // namespace
}  // namespace strata
