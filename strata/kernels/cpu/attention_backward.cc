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
  Backward(const Inputs& inputs, int64_t max_rows, std::span<std::byte> scratch)
      : in_(inputs), dim_(inputs.args.head_dim), scale_(1.0f / std::sqrt(static_cast<float>(dim_))) {
    Scratch rest(scratch);
    for (float** tile : {&keys_, &keys_transposed_, &values_, &values_transposed_})
      *tile = rest.take<float>(kTileStride * dim_);
    for (float** tile : {&queries_, &douts_, &outs_}) *tile = rest.take<float>(kQueryTile * dim_);
    for (float** tile : {&probabilities_, &dscores_}) *tile = rest.take<float>(kQueryTile * kTileStride);
    deltas_ = rest.take<float>(max_rows);
    if (inputs.q.dtype == DType::kBF16)
      for (float** sum : {&dq_memory_, &dk_memory_, &dv_memory_}) *sum = rest.take<float>(max_rows * dim_);
  }

  void compute(int64_t sequence, int64_t kv_head) {
    sequence_ = sequence;
    rows_ = sequence_rows(in_.args, sequence);
    const bool adds = in_.args.write == Write::kAdd;
    const HeadGradient dk(in_.dk, rows_.kv_begin, rows_.num_keys, kv_head, dim_, dk_memory_);
    const HeadGradient dv(in_.dv, rows_.kv_begin, rows_.num_keys, kv_head, dim_, dv_memory_);
    if (!adds) dk.clear(), dv.clear();
    const int64_t group = in_.args.heads / in_.args.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadGradient dq(in_.dq, rows_.q_begin, rows_.num_queries, head, dim_, dq_memory_);
      if (!adds) dq.clear();
      fill_deltas(head);
      for (int64_t piece = 0; piece < in_.args.pieces; ++piece) {
        const int64_t num_keys = block_of(in_.args, sequence, 0, piece).num_keys;
        for (int64_t key = 0; key < num_keys; key += kKeyTile) add_keys(head, piece, key, {dq, dk, dv});
      }
      dq.store();
    }
    dk.store();
    dv.store();
  }

 private:
  struct HeadGradients {
    const HeadGradient &dq, &dk, &dv;
  };

  // delta = dout . out: the sum over keys of probability * dprobability.
  void fill_deltas(int64_t head) {
    for (int64_t query = 0; query < rows_.num_queries; query += kQueryTile) {
      const int64_t count = std::min(kQueryTile, rows_.num_queries - query), row = rows_.q_begin + query;
      const Operand out = rows_of_head(in_.out, row, count, head, dim_, outs_);
      const Operand dout = rows_of_head(in_.dout, row, count, head, dim_, douts_);
      for (int64_t i = 0; i < count; ++i)
        deltas_[query + i] = dot_row(out.data + i * out.stride, dout.data + i * dout.stride, dim_);
    }
  }

  bool is_seen(int64_t kv_piece, int64_t key) const {
    for (int64_t piece = 0; piece < in_.args.pieces; ++piece) {
      const Block block = block_of(in_.args, sequence_, piece, kv_piece);
      if (block.first_seeing(key) < block.num_queries) return true;
    }
    return false;
  }

  // A tile of the keys of a piece.
  void add_keys(int64_t head, int64_t kv_piece, int64_t key, const HeadGradients& gradients) {
    if (!is_seen(kv_piece, key)) return;
    const Block keys_of = block_of(in_.args, sequence_, 0, kv_piece);
    const int64_t count = std::min(kKeyTile, keys_of.num_keys - key), row = keys_of.kv_begin + key;
    const int64_t kv_head = head / (in_.args.heads / in_.args.kv_heads);
    const Operand keys = rows_of_head(in_.k, row, count, kv_head, dim_, keys_);
    const Operand values = rows_of_head(in_.v, row, count, kv_head, dim_, values_);
    transpose_block(keys.data, keys.stride, count, dim_, keys_transposed_, kTileStride);
    transpose_block(values.data, values.stride, count, dim_, values_transposed_, kTileStride);
    for (int64_t piece = 0; piece < in_.args.pieces; ++piece) {
      block_ = block_of(in_.args, sequence_, piece, kv_piece);
      for (int64_t query = block_.first_seeing(key); query < block_.num_queries; query += kQueryTile)
        add_tile(head, query, key, count, keys, gradients);
    }
  }

  void add_tile(int64_t head, int64_t query, int64_t key, int64_t count, const Operand& keys,
                const HeadGradients& gradients) {
    const int64_t queries = std::min(kQueryTile, block_.num_queries - query), q_row = block_.q_begin + query;
    const int64_t seen = std::min(count, block_.visible(query + queries - 1) - key);
    const int64_t kv_place = block_.kv_begin - rows_.kv_begin + key;
    const Operand q = rows_of_head(in_.q, q_row, queries, head, dim_, queries_);
    const Operand dout = rows_of_head(in_.dout, q_row, queries, head, dim_, douts_);
    sgemm({queries, seen, dim_}, scale_, q, {keys_transposed_, kTileStride}, 0.0f, {probabilities_, kTileStride});
    sgemm({queries, seen, dim_}, 1.0f, dout, {values_transposed_, kTileStride}, 0.0f, {dscores_, kTileStride});
    for (int64_t i = 0; i < queries; ++i) differentiate_row(head, query + i, i, key, seen);
    const Operand probabilities{probabilities_, kTileStride, Trans::kYes}, dscores{dscores_, kTileStride, Trans::kYes};
    sgemm({seen, dim_, queries}, 1.0f, probabilities, dout, 1.0f, gradients.dv.from(kv_place));
    sgemm({seen, dim_, queries}, scale_, dscores, q, 1.0f, gradients.dk.from(kv_place));
    sgemm({queries, dim_, seen}, scale_, {dscores_, kTileStride}, keys, 1.0f, gradients.dq.from(q_row - rows_.q_begin));
  }

  // Turns scores into the (dropped) probabilities and their gradients into those of the scores.
  void differentiate_row(int64_t head, int64_t query, int64_t index, int64_t key, int64_t seen) {
    const int64_t own = std::min(seen, block_.visible(query) - key), row = block_.q_begin + query;
    float* const probabilities = probabilities_ + index * kTileStride;
    float* const dscores = dscores_ + index * kTileStride;
    exp_row(probabilities, own, in_.lse.row<float>(row)[head]);
    std::array<float, kKeyTile> factors;
    const bool drop = in_.args.dropout.rate != 0.0f;
    if (drop) {
      fill_keep_factors(in_.args.dropout, row, in_.args.first_head + head, block_.first_key + key, own, factors.data());
      multiply_row(factors.data(), dscores, own);
    }
    softmax_gradient_row(probabilities, dscores, own, deltas_[row - rows_.q_begin]);
    if (drop) multiply_row(factors.data(), probabilities, own);
    std::fill(probabilities + own, probabilities + seen, 0.0f);
    std::fill(dscores + own, dscores + seen, 0.0f);
  }

  const Inputs& in_;
  int64_t dim_;
  float scale_;
  int64_t sequence_ = 0;
  SequenceRows rows_{};
  Block block_{};
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
  for (const TensorView* gradient : {&dq, &dk, &dv})
    STRATA_CHECK(gradient->dtype == DType::kF32 || (gradient->dtype == q.dtype && args.write == Write::kSet),
                 "a gradient of {} in {} that is {}", dtype_name(q.dtype), dtype_name(gradient->dtype),
                 args.write == Write::kSet ? "set" : "added to");
  const Inputs inputs{args, q, k, v, out, lse, dout, dq, dk, dv};
  int64_t max_rows = 0;
  for (int64_t index = 0; index < num_sequences(args); ++index) {
    const SequenceRows rows = sequence_rows(args, index);
    max_rows = std::max({max_rows, rows.num_keys, rows.num_queries});
  }
  const int64_t items = num_sequences(args) * args.kv_heads;
  std::atomic<int64_t> next{0};
  context.team.run([&](int member, int) {
    int64_t index = next.fetch_add(1);
    if (index >= items) return;
    Backward backward(inputs, max_rows, scratch_of_member(context, member));
    for (; index < items; index = next.fetch_add(1)) backward.compute(index / args.kv_heads, index % args.kv_heads);
  });
}

}  // namespace strata::kernels
