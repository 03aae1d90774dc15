// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>

#include "strata/kernels/cpu/attention.h"
#include "strata/kernels/cpu/rows.h"

namespace strata::kernels {
namespace {

struct Inputs {
  const AttentionArgs& args;
  const TensorView &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv;
};

// Where the gradient of some rows of one head is summed in f32: the gradient's own memory, or scratch when it is bf16.
struct HeadGradient {
  TensorView view;  // rows of the sequence, columns of the head
  Target sum;

  HeadGradient(const TensorView& gradient, int64_t begin, int64_t count, int64_t head, int64_t head_dim, float* memory)
      : view(gradient.slice_rows(begin, count).slice_cols(head * head_dim, head_dim)),
        sum(gradient.dtype == DType::kF32 ? Target{view.row<float>(0), view.row_stride} : Target{memory, head_dim}) {}

  Target from(int64_t row) const { return {sum.data + row * sum.stride, sum.stride}; }

  void clear() const {
    for (int64_t row = 0; row < view.rows; ++row) std::fill_n(from(row).data, view.cols, 0.0f);
  }

  void store() const {
    if (view.dtype == DType::kF32) return;
    for (int64_t row = 0; row < view.rows; ++row) narrow_row(from(row).data, view.row<BF16>(row), view.cols);
  }
};

// One member's work: all gradients of one sequence and kv head at a time, in a fixed order.
class Backward {
 public:
  Backward(const Inputs& inputs, int64_t max_keys, std::span<std::byte> scratch)
      : in_(inputs), dim_(inputs.args.head_dim), scale_(1.0f / std::sqrt(static_cast<float>(dim_))) {
    Scratch rest(scratch);
    for (float** tile : {&keys_, &keys_transposed_, &values_, &values_transposed_})
      *tile = rest.take<float>(kTileStride * dim_);
    for (float** tile : {&queries_, &douts_, &outs_}) *tile = rest.take<float>(kQueryTile * dim_);
    for (float** tile : {&probabilities_, &dscores_}) *tile = rest.take<float>(kQueryTile * kTileStride);
    deltas_ = rest.take<float>(max_keys);
    if (inputs.q.dtype == DType::kBF16)
      for (float** sum : {&dq_memory_, &dk_memory_, &dv_memory_}) *sum = rest.take<float>(max_keys * dim_);
  }

  void compute(const Sequence& sequence, int64_t kv_head) {
    sequence_ = sequence;
    const HeadGradient dk(in_.dk, sequence.kv_begin, sequence.num_keys, kv_head, dim_, dk_memory_);
    const HeadGradient dv(in_.dv, sequence.kv_begin, sequence.num_keys, kv_head, dim_, dv_memory_);
    dk.clear();
    dv.clear();
    const int64_t group = in_.args.heads / in_.args.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadGradient dq(in_.dq, sequence.q_begin, sequence.num_queries, head, dim_, dq_memory_);
      dq.clear();
      fill_deltas(head);
      for (int64_t key = 0; key < sequence.num_keys; key += kKeyTile) add_keys(head, key, dq, dk, dv);
      dq.store();
    }
    dk.store();
    dv.store();
  }

 private:
  // delta = dout . out: the sum over keys of probability * dprobability.
  void fill_deltas(int64_t head) {
    for (int64_t query = 0; query < sequence_.num_queries; query += kQueryTile) {
      const int64_t count = std::min(kQueryTile, sequence_.num_queries - query), row = sequence_.q_begin + query;
      const Operand out = rows_of_head(in_.out, row, count, head, dim_, outs_);
      const Operand dout = rows_of_head(in_.dout, row, count, head, dim_, douts_);
      for (int64_t i = 0; i < count; ++i)
        deltas_[query + i] = dot_row(out.data + i * out.stride, dout.data + i * dout.stride, dim_);
    }
  }

  void add_keys(int64_t head, int64_t key, const HeadGradient& dq, const HeadGradient& dk, const HeadGradient& dv) {
    const int64_t count = std::min(kKeyTile, sequence_.num_keys - key), row = sequence_.kv_begin + key;
    const int64_t kv_head = head / (in_.args.heads / in_.args.kv_heads);
    const Operand keys = rows_of_head(in_.k, row, count, kv_head, dim_, keys_);
    const Operand values = rows_of_head(in_.v, row, count, kv_head, dim_, values_);
    transpose_block(keys.data, keys.stride, count, dim_, keys_transposed_, kTileStride);
    transpose_block(values.data, values.stride, count, dim_, values_transposed_, kTileStride);
    const int64_t first =
        std::max<int64_t>(0, key + 1 - sequence_.visible(0));  // the first query that sees the first key
    for (int64_t query = first; query < sequence_.num_queries; query += kQueryTile) {
      const int64_t queries = std::min(kQueryTile, sequence_.num_queries - query), q_row = sequence_.q_begin + query;
      const int64_t seen = std::min(count, sequence_.visible(query + queries - 1) - key);
      const Operand q = rows_of_head(in_.q, q_row, queries, head, dim_, queries_);
      const Operand dout = rows_of_head(in_.dout, q_row, queries, head, dim_, douts_);
      sgemm({queries, seen, dim_}, scale_, q, {keys_transposed_, kTileStride}, 0.0f, {probabilities_, kTileStride});
      sgemm({queries, seen, dim_}, 1.0f, dout, {values_transposed_, kTileStride}, 0.0f, {dscores_, kTileStride});
      for (int64_t i = 0; i < queries; ++i) differentiate_row(head, query + i, i, key, seen);
      const Operand probabilities{probabilities_, kTileStride, Trans::kYes},
          dscores{dscores_, kTileStride, Trans::kYes};
      sgemm({seen, dim_, queries}, 1.0f, probabilities, dout, 1.0f, dv.from(key));
      sgemm({seen, dim_, queries}, scale_, dscores, q, 1.0f, dk.from(key));
      sgemm({queries, dim_, seen}, scale_, {dscores_, kTileStride}, keys, 1.0f, dq.from(query));
    }
  }

  // Turns scores into the (dropped) probabilities and their gradients into those of the scores.
  void differentiate_row(int64_t head, int64_t query, int64_t index, int64_t key, int64_t seen) {
    const int64_t own = std::min(seen, sequence_.visible(query) - key), row = sequence_.q_begin + query;
    float* const probabilities = probabilities_ + index * kTileStride;
    float* const dscores = dscores_ + index * kTileStride;
    exp_row(probabilities, own, in_.lse.row<float>(row)[head]);
    std::array<float, kKeyTile> factors;
    const bool drop = in_.args.dropout.rate != 0.0f;
    if (drop) {
      fill_keep_factors(in_.args.dropout, row, in_.args.first_head + head, key, own, factors.data());
      multiply_row(factors.data(), dscores, own);
    }
    softmax_gradient_row(probabilities, dscores, own, deltas_[query]);
    if (drop) multiply_row(factors.data(), probabilities, own);
    std::fill(probabilities + own, probabilities + seen, 0.0f);
    std::fill(dscores + own, dscores + seen, 0.0f);
  }

  const Inputs& in_;
  int64_t dim_;
  float scale_;
  Sequence sequence_{};
  float *keys_, *keys_transposed_, *values_, *values_transposed_;                       // one key tile
  float *queries_, *douts_, *outs_, *probabilities_, *dscores_;                         // one query tile
  float *deltas_, *dq_memory_ = nullptr, *dk_memory_ = nullptr, *dv_memory_ = nullptr;  // one sequence
};

}  // namespace

int64_t attention_backward_member_bytes(DType dtype, int64_t head_dim, int64_t max_seq) {
  return kScratchLine + 4 * round_to_line(4 * kTileStride * head_dim) + 3 * round_to_line(4 * kQueryTile * head_dim) +
         2 * round_to_line(4 * kQueryTile * kTileStride) + round_to_line(4 * max_seq) +
         (dtype == DType::kBF16 ? 3 * round_to_line(4 * max_seq * head_dim) : 0);
}

void attention_backward(const Context& context, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out, const TensorView& lse, const TensorView& dout,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv) {
  check_attention(args, q, k, v);
  STRATA_CHECK(out.cols == q.cols && dout.cols == q.cols && dq.cols == q.cols && dk.cols == k.cols && dv.cols == v.cols,
               "gradients of {}, {}, {} columns", dq.cols, dk.cols, dv.cols);
  STRATA_CHECK(out.rows == q.rows && dout.rows == q.rows && lse.rows == q.rows && dq.rows == q.rows &&
                   dk.rows == k.rows && dv.rows == v.rows,
               "gradients of {}, {}, {} rows", dq.rows, dk.rows, dv.rows);
  STRATA_CHECK(dq.dtype == q.dtype && dk.dtype == q.dtype && dv.dtype == q.dtype, "gradients of {} in {}, {}, {}",
               dtype_name(q.dtype), dtype_name(dq.dtype), dtype_name(dk.dtype), dtype_name(dv.dtype));
  const Inputs inputs{args, q, k, v, out, lse, dout, dq, dk, dv};
  int64_t max_keys = 0;
  for (int64_t index = 0; index < num_sequences(args); ++index)
    max_keys = std::max(max_keys, sequence_of(args, index).num_keys);
  const int64_t items = num_sequences(args) * args.kv_heads;
  std::atomic<int64_t> next{0};
  context.team.run([&](int member, int) {
    int64_t index = next.fetch_add(1);
    if (index >= items) return;
    Backward backward(inputs, max_keys, scratch_of_member(context, member));
    for (; index < items; index = next.fetch_add(1))
      backward.compute(sequence_of(args, index / args.kv_heads), index % args.kv_heads);
  });
}

}  // namespace strata::kernels
