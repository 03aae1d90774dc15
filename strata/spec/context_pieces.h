// SPDX-License-Identifier: Apache-2.0
// How the ranks of a context-parallel group share the tokens of a sequence. It is cut into 2 * ranks pieces of equal
// length, the first ones longer by one token where they must; rank c has pieces c and 2 * ranks - 1 - c. So all ranks
// have equally much to attend under the causal mask, and numbers of tokens that differ by at most one per sequence.
// Short sequences have empty pieces. Pure.
#pragma once

#include <array>
#include <span>

#include "strata/spec/batch_sheet.h"

namespace strata {

struct TokenRange {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const TokenRange&) const = default;
};

// The two pieces of a sequence of `length` tokens that a rank has, in order. Of one rank: the whole and nothing.
std::array<TokenRange, 2> context_pieces(int64_t length, int64_t ranks, int64_t rank);
// Their tokens.
int64_t context_part(int64_t length, int64_t ranks, int64_t rank);
// The most tokens that any rank has of a sequence of at most `length`: a rank with q of 2 * ranks equal parts in both
// pieces, and what remains dealt out one by one, has ceil(length / ranks).
int64_t largest_context_part(int64_t length, int64_t ranks);

// Sets piece_offsets and piece_positions of a micro-batch of several context ranks for sequence `index` of this whole
// length. Called for all sequences in order.
void set_pieces(MicroBatch& batch, int64_t index, int64_t length);

}  // namespace strata
