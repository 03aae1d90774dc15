// SPDX-License-Identifier: Apache-2.0
#include "strata/exec/row_exchange.h"

#include <gtest/gtest.h>

#include <numeric>

#include "strata/base/error.h"
#include "strata/comm/testing_ranks.h"
#include "strata/spec/context_pieces.h"

namespace strata {
namespace {

constexpr int kRanks = 6;
constexpr int64_t kSamples = 6;
const std::vector<int64_t> kLengths = {9, 1, 12, 3, 7};  // a short micro-batch
const std::vector<int64_t> kBlocks = {12, 24};           // bytes of a row

// The byte of a token's row is known by token and column.
std::byte byte_of(int64_t sequence, int64_t position, int64_t column) {
  return static_cast<std::byte>(sequence * 91 + position * 37 + column);
}

// What a rank with this holding has.
std::vector<std::byte> rows_of(const Holding& holding) {
  std::vector<std::byte> rows;
  const int64_t each = kSamples / holding.tokens.split.dp;
  const int64_t first = holding.tokens.data * each;
  for (int64_t sequence = first; sequence < std::min<int64_t>(first + each, kLengths.size()); ++sequence)
    for (const TokenRange& piece :
         context_pieces(kLengths[static_cast<size_t>(sequence)], holding.tokens.split.cp, holding.tokens.context))
      for (int64_t position = piece.begin; position < piece.begin + piece.count; ++position)
        for (int64_t block = 0, begin = 0; block < 2; begin += kBlocks[static_cast<size_t>(block++)]) {
          const int64_t width = kBlocks[static_cast<size_t>(block)] / holding.column_parts;
          for (int64_t column = 0; column < width; ++column)
            rows.push_back(byte_of(sequence, position, begin + holding.column_part * width + column));
        }
  return rows;
}

void expect_exchange(const std::vector<Holding>& from, const std::vector<Holding>& to, size_t scratch_bytes) {
  run_local_ranks(kRanks, 20, [&](Comm& comm) {
    std::vector<int> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    const Group group = comm.group("exchange", ranks, 0);
    const auto rank = static_cast<size_t>(comm.rank());
    const std::vector<std::byte> source = rows_of(from[rank]), wanted = rows_of(to[rank]);
    std::vector<std::byte> target(wanted.size()), scratch(scratch_bytes);
    RowExchange exchange{from, to, kLengths, kSamples, kBlocks, source.data(), target.data(), scratch};
    exchange_rows(comm, group, exchange);
    EXPECT_EQ(target, wanted) << "rank " << comm.rank();
  });
}

std::vector<Holding> holdings(const TokenSplit& split) {
  std::vector<Holding> result;
  for (int64_t rank = 0; rank < kRanks; ++rank) result.push_back({token_share(split, kRanks, rank)});
  return result;
}

// All bytes of a rank's source and target, at most.
constexpr size_t kScratch = 2 * 32 * 36;

TEST(RowExchange, BetweenAllSplits) {
  const std::vector<TokenSplit> splits = {{1, 1}, {2, 1}, {3, 1}, {6, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 2}, {1, 6}};
  for (const TokenSplit& from : splits)
    for (const TokenSplit& to : splits) expect_exchange(holdings(from), holdings(to), kScratch);
}

TEST(RowExchange, WholeSequencesNeedNoScratch) {
  for (const TokenSplit& from : {TokenSplit{1, 1}, TokenSplit{2, 1}, TokenSplit{6, 1}})
    for (const TokenSplit& to : {TokenSplit{1, 1}, TokenSplit{3, 1}, TokenSplit{6, 1}})
      expect_exchange(holdings(from), holdings(to), 0);
}

// Tokens of all columns to all tokens of some columns, and back.
TEST(RowExchange, FromTokensToColumns) {
  std::vector<Holding> tokens, columns;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    tokens.push_back({token_share({1, 6}, kRanks, rank)});
    columns.push_back({token_share({1, 1}, kRanks, rank), rank, kRanks});
  }
  expect_exchange(tokens, columns, kScratch);
  expect_exchange(columns, tokens, kScratch);
}

}  // namespace
}  // namespace strata
