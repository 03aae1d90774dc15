// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/attention.h"

#include <algorithm>

#include "strata/base/random.h"
#include "strata/kernels/cpu/rows.h"

namespace strata::kernels {

Sequence sequence_of(const AttentionArgs& args, int64_t index) {
  return {args.q_offsets[index], args.q_offsets[index + 1] - args.q_offsets[index], args.kv_offsets[index],
          args.kv_offsets[index + 1] - args.kv_offsets[index]};
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
  for (int64_t index = 0; index < num_sequences(args); ++index) {
    const Sequence sequence = sequence_of(args, index);
    STRATA_CHECK(sequence.num_queries >= 0 && sequence.num_keys >= sequence.num_queries,
                 "sequence {} has {} queries, {} keys", index, sequence.num_queries, sequence.num_keys);
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
  for (int64_t key = 0; key < count; key += 4) {
    const uint64_t column = static_cast<uint64_t>(head) << 32 | static_cast<uint64_t>(begin + key);
    const PhiloxBlock words = philox(dropout.key, token, column / 4);
    for (int64_t i = 0; i < std::min<int64_t>(4, count - key); ++i)
      factors[key + i] = uniform_from(words[i]) >= dropout.rate ? keep : 0.0f;
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
