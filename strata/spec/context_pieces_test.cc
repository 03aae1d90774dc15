// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/context_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(ContextPieces, OfTwoRanks) {
  EXPECT_THAT(context_pieces(8, 2, 0), ElementsAre(TokenRange{0, 2}, TokenRange{6, 2}));
  EXPECT_THAT(context_pieces(8, 2, 1), ElementsAre(TokenRange{2, 2}, TokenRange{4, 2}));
  EXPECT_THAT(context_pieces(7, 2, 0), ElementsAre(TokenRange{0, 2}, TokenRange{6, 1}));
  EXPECT_THAT(context_pieces(7, 2, 1), ElementsAre(TokenRange{2, 2}, TokenRange{4, 2}));
  EXPECT_THAT(context_pieces(1, 2, 0), ElementsAre(TokenRange{0, 1}, TokenRange{1, 0}));
  EXPECT_THAT(context_pieces(1, 2, 1), ElementsAre(TokenRange{1, 0}, TokenRange{1, 0}));
}

TEST(ContextPieces, OneRankHasTheWhole) {
  EXPECT_THAT(context_pieces(5, 1, 0), ElementsAre(TokenRange{0, 5}, TokenRange{5, 0}));
}

// Every token is in one piece of one rank, no rank has more than the bound, some rank has that many, and ranks differ
// by at most one token.
TEST(ContextPieces, CoverEverySequenceEvenly) {
  for (int64_t ranks = 1; ranks <= 7; ++ranks)
    for (int64_t length = 0; length <= 40; ++length) {
      std::vector<int> owners(static_cast<size_t>(length), 0);
      int64_t least = length, most = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        for (const TokenRange& range : context_pieces(length, ranks, rank))
          for (int64_t token = range.begin; token < range.begin + range.count; ++token)
            ++owners[static_cast<size_t>(token)];
        least = std::min(least, context_part(length, ranks, rank));
        most = std::max(most, context_part(length, ranks, rank));
      }
      EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), length) << length << " tokens over " << ranks;
      EXPECT_EQ(most, largest_context_part(length, ranks)) << length << " tokens over " << ranks;
      EXPECT_LE(most - least, 1) << length << " tokens over " << ranks;
    }
}

// What a rank attends: the sum over its queries of the keys they see. Pieces of equal length give equal sums.
TEST(ContextPieces, AttendEquallyMuch) {
  for (int64_t ranks : {2, 3, 4})
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t seen = 0;
      for (const TokenRange& range : context_pieces(24 * ranks, ranks, rank))
        for (int64_t token = range.begin; token < range.begin + range.count; ++token) seen += token + 1;
      EXPECT_EQ(seen * ranks, 24 * ranks * (24 * ranks + 1) / 2) << "rank " << rank << " of " << ranks;
    }
}

TEST(ContextPieces, TableOfAllRanks) {
  std::vector<std::byte> memory(static_cast<size_t>(micro_batch_bytes({8, 2, 2})) + 64);
  MicroBatch batch = MicroBatchStorage(memory.data(), {8, 2, 2}).resize(6, 2);
  set_pieces(batch, 0, 7);
  set_pieces(batch, 1, 2);
  EXPECT_THAT(batch.part_of(0).offsets, ElementsAre(0, 2, 3, 4, 4));
  EXPECT_THAT(batch.part_of(0).positions, ElementsAre(0, 6, 0, 2));
  EXPECT_EQ(batch.part_of(0).num_tokens(), 4);
  EXPECT_THAT(batch.part_of(1).offsets, ElementsAre(0, 2, 4, 5, 5));
  EXPECT_THAT(batch.part_of(1).positions, ElementsAre(2, 4, 1, 2));
  EXPECT_EQ(batch.part_of(1).num_tokens(), 5);
}

}  // namespace
}  // namespace strata
