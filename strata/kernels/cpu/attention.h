// SPDX-License-Identifier: Apache-2.0
// What both directions of attention share: the sequences, the sizes of the tiles and the pieces of a tile.
// Scores are computed for kQueryTile queries x kKeyTile keys at a time, trimmed to the keys the last query sees.
// Keys (and in backward values) of a tile are transposed once, which makes the small products fast.
#pragma once

#include <algorithm>
#include <array>

#include "strata/kernels/cpu/scratch.h"
#include "strata/kernels/cpu/sgemm.h"
#include "strata/kernels/kernels.h"

namespace strata::kernels {

constexpr int64_t kQueryTile = 32;
constexpr int64_t kKeyTile = 256;
constexpr int64_t kTileStride = kKeyTile + 16;  // not a power of two: rows do not compete for the same cache lines
constexpr int64_t kQueryChunk = 512;            // queries of one forward item: they share the transposed keys

// All rows of a sequence.
struct SequenceRows {
  int64_t q_begin, num_queries, kv_begin, num_keys;
};

// The rows of a piece of queries and a piece of keys of one sequence.
struct Block {
  int64_t q_begin, num_queries, kv_begin, num_keys;
  int64_t ahead;      // position of the first query less that of the first key
  int64_t first_key;  // position of the first key inside the sequence

  // Keys that query `index` sees.
  int64_t visible(int64_t index) const { return std::clamp<int64_t>(ahead + index + 1, 0, num_keys); }
  // The first query that sees key `index`; num_queries or more: none.
  int64_t first_seeing(int64_t index) const { return std::max<int64_t>(index - ahead, 0); }
};

int64_t num_sequences(const AttentionArgs& args);
SequenceRows sequence_rows(const AttentionArgs& args, int64_t sequence);
Block block_of(const AttentionArgs& args, int64_t sequence, int64_t q_piece, int64_t kv_piece);

// q and `out`-like views have heads, k and v kv_heads; all offsets rise and end at the last row; without positions
// every query has keys.
void check_attention(const AttentionArgs& args, const TensorView& q, const TensorView& k, const TensorView& v);

// Rows [begin, begin + count) of one head as f32: the view's own memory, or widened into `memory`.
Operand rows_of_head(const TensorView& view, int64_t begin, int64_t count, int64_t head, int64_t head_dim,
                     float* memory);

// The factors (0 or 1 / (1 - rate)) of a row's probabilities for keys [begin, begin + count) of the sequence.
void fill_keep_factors(const Dropout& dropout, int64_t q_row, int64_t head, int64_t begin, int64_t count,
                       float* factors);

// The share of a member, out of a scratch for all.
std::span<std::byte> scratch_of_member(const Context& context, int member);

int64_t attention_forward_member_bytes(int64_t head_dim);
int64_t attention_backward_member_bytes(DType dtype, int64_t head_dim, int64_t max_seq);

}  // namespace strata::kernels
