// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/attention.h"

#include <algorithm>

#include "strata/base/random.h"
#include "strata/kernels/cpu/rows.h"

namespace strata::kernels {

int64_t num_sequences(const AttentionArgs& args) {
  return (static_cast<int64_t>(args.q_offsets.size()) - 1) / args.pieces;
}

SequenceRows sequence_rows(const AttentionArgs& args, int64_t sequence) {
  const int64_t first = sequence * args.pieces, end = first + args.pieces;
  return {args.q_offsets[first], args.q_offsets[end] - args.q_offsets[first], args.kv_offsets[first],
          args.kv_offsets[end] - args.kv_offsets[first]};
}

Block block_of(const AttentionArgs& args, int64_t sequence, int64_t q_piece, int64_t kv_piece) {
  const int64_t q = sequence * args.pieces + q_piece, kv = sequence * args.pieces + kv_piece;
  Block block{args.q_offsets[q],
              args.q_offsets[q + 1] - args.q_offsets[q],
              args.kv_offsets[kv],
              args.kv_offsets[kv + 1] - args.kv_offsets[kv],
              0,
              0};
  if (args.q_positions.empty()) {
    block.ahead = block.num_keys - block.num_queries;
  } else {
    block.first_key = args.kv_positions[kv];
    block.ahead = args.q_positions[q] - block.first_key;
  }
  return block;
}

void check_attention(const AttentionArgs& args, const TensorView& q, const TensorView& k, const TensorView& v) {
  STRATA_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0, "{} heads share {} kv heads", args.heads,
               args.kv_heads);
  STRATA_CHECK(q.cols == args.heads * args.head_dim && k.cols == args.kv_heads * args.head_dim && v.cols == k.cols,
               "q, k, v have {}, {}, {} columns for {} and {} heads of {}", q.cols, k.cols, v.cols, args.heads,
               args.kv_heads, args.head_dim);
  STRATA_CHECK(q.dtype == k.dtype && k.dtype == v.dtype && (q.dtype == DType::kF32 || q.dtype == DType::kBF16),
               "attention of {}, {}, {}", dtype_name(q.dtype), dtype_name(k.dtype), dtype_name(v.dtype));
  STRATA_CHECK(!args.q_offsets.empty() && args.q_offsets.size() == args.kv_offsets.size(), "{} and {} offsets",
               args.q_offsets.size(), args.kv_offsets.size());
  STRATA_CHECK(args.q_offsets.front() == 0 && args.q_offsets.back() == q.rows, "q offsets {} to {} for {} rows",
               args.q_offsets.front(), args.q_offsets.back(), q.rows);
  STRATA_CHECK(args.kv_offsets.front() == 0 && args.kv_offsets.back() == k.rows && v.rows == k.rows,
               "kv offsets {} to {} for {} and {} rows", args.kv_offsets.front(), args.kv_offsets.back(), k.rows,
               v.rows);
  const bool whole = args.pieces == 1 && args.q_positions.empty();
  STRATA_CHECK(whole ? args.kv_positions.empty()
                     : args.q_positions.size() == args.q_offsets.size() - 1 &&
                           args.kv_positions.size() == args.q_positions.size() &&
                           args.q_positions.size() % args.pieces == 0,
               "{} and {} positions of {} pieces, sequences of {}", args.q_positions.size(), args.kv_positions.size(),
               args.q_offsets.size() - 1, args.pieces);
  for (int64_t index = 0; index < num_sequences(args); ++index) {
    const SequenceRows rows = sequence_rows(args, index);
    STRATA_CHECK(rows.num_queries >= 0 && rows.num_keys >= (whole ? rows.num_queries : 0),
                 "sequence {} has {} queries, {} keys", index, rows.num_queries, rows.num_keys);
  }
  STRATA_CHECK(args.dropout.rate == 0.0f || static_cast<int64_t>(args.dropout.tokens.size()) == q.rows,
               "dropout has {} tokens for {} rows", args.dropout.tokens.size(), q.rows);
}

Operand rows_of_head(const TensorView& view, int64_t begin, int64_t count, int64_t head, int64_t head_dim,
                     float* memory) {
  if (view.dtype == DType::kF32) return {view.row<float>(begin) + head * head_dim, view.row_stride};
  for (int64_t row = 0; row < count; ++row)
    widen_row(view.row<BF16>(begin + row) + head * head_dim, memory + row * head_dim, head_dim);
  return {memory, head_dim};
}

void fill_keep_factors(const Dropout& dropout, int64_t q_row, int64_t head, int64_t begin, int64_t count,
                       float* factors) {
  const float keep = 1.0f / (1.0f - dropout.rate);
  const uint64_t token = static_cast<uint64_t>(dropout.tokens[q_row]);
  for (int64_t key = 0; key < count;) {
    const uint64_t column = static_cast<uint64_t>(head) << 32 | static_cast<uint64_t>(begin + key);
    const PhiloxBlock words = philox(dropout.key, token, column / 4);
    for (uint64_t i = column % 4; i < 4 && key < count; ++i, ++key)
      factors[key] = uniform_from(words[i]) >= dropout.rate ? keep : 0.0f;
  }
}

std::span<std::byte> scratch_of_member(const Context& context, int member) {
  const size_t share = context.scratch.size() / context.team.num_threads() / kScratchLine * kScratchLine;
  return context.scratch.subspan(member * share, share);
}

int64_t attention_scratch_bytes(DType dtype, int64_t head_dim, int64_t max_seq, int num_threads) {
  return num_threads *
         std::max(attention_forward_member_bytes(head_dim), attention_backward_member_bytes(dtype, head_dim, max_seq));
}

}  // namespace strata::kernels
