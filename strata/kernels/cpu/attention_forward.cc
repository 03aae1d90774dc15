// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "strata/kernels/cpu/attention.h"
#include "strata/kernels/cpu/rows.h"

namespace strata::kernels {
namespace {

// A chunk of the queries of one piece and head; a piece of n queries has heads * ceil(n / kQueryChunk) of them.
struct Item {
  int64_t sequence, piece, head, begin, end;  // queries of the piece
};

int64_t num_chunks(const AttentionArgs& args, int64_t piece) {
  return (args.q_offsets[piece + 1] - args.q_offsets[piece] + kQueryChunk - 1) / kQueryChunk;
}

int64_t num_items(const AttentionArgs& args) {
  int64_t count = 0;
  for (int64_t piece = 0; piece < num_sequences(args) * args.pieces; ++piece)
    count += args.heads * num_chunks(args, piece);
  return count;
}

// Later chunks of a piece see more keys and come first, so that the short ones fill the end.
Item item_of(const AttentionArgs& args, int64_t index) {
  for (int64_t piece = 0;; ++piece) {
    const int64_t chunks = num_chunks(args, piece);
    if (index >= args.heads * chunks) {
      index -= args.heads * chunks;
      continue;
    }
    const int64_t begin = (chunks - 1 - index / args.heads) * kQueryChunk;
    const int64_t queries = args.q_offsets[piece + 1] - args.q_offsets[piece];
    return {piece / args.pieces, piece % args.pieces, index % args.heads, begin,
            std::min(begin + kQueryChunk, queries)};
  }
}

struct Inputs {
  const AttentionArgs& args;
  const TensorView &q, &k, &v, &out, &lse;
};

// One member's work: online softmax over key tiles for the queries of one item at a time.
class Forward {
 public:
  Forward(const Inputs& inputs, std::span<std::byte> scratch) : in_(inputs), dim_(inputs.args.head_dim) {
    Scratch rest(scratch);
    keys_ = rest.take<float>(dim_ * kTileStride);
    keys_transposed_ = rest.take<float>(dim_ * kTileStride);
    values_ = rest.take<float>(dim_ * kTileStride);
    queries_ = rest.take<float>(kQueryTile * dim_);
    scores_ = rest.take<float>(kQueryTile * kTileStride);
    sums_ = rest.take<float>(kQueryChunk * dim_);
    largest_ = rest.take<float>(kQueryChunk);
    totals_ = rest.take<float>(kQueryChunk);
  }

  void compute(const Item& item) {
    item_ = item;
    if (adds() && !sees_keys()) return;
    begin();
    for (int64_t piece = 0; piece < in_.args.pieces; ++piece) {
      block_ = block_of(in_.args, item.sequence, item.piece, piece);
      const int64_t num_keys = block_.visible(item.end - 1);
      for (int64_t key = 0; key < num_keys; key += kKeyTile) add_keys(key, std::min(kKeyTile, num_keys - key));
    }
    for (int64_t query = item.begin; query < item.end; ++query) finish(query);
  }

 private:
  bool adds() const { return in_.args.write == Write::kAdd; }
  // The sums hold something before the first tile: the first one does not set them.
  bool begun() const { return adds() || in_.args.pieces > 1; }

  bool sees_keys() const {
    for (int64_t piece = 0; piece < in_.args.pieces; ++piece)
      if (block_of(in_.args, item_.sequence, item_.piece, piece).visible(item_.end - 1) > 0) return true;
    return false;
  }

  void begin() {
    const int64_t queries = item_.end - item_.begin;
    block_ = block_of(in_.args, item_.sequence, item_.piece, 0);
    std::fill_n(largest_, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(totals_, queries, 0.0f);
    if (begun()) std::fill_n(sums_, queries * dim_, 0.0f);
    if (!adds()) return;
    for (int64_t index = 0; index < queries; ++index) {
      const int64_t row = block_.q_begin + item_.begin + index;
      largest_[index] = in_.lse.row<float>(row)[item_.head];
      totals_[index] = 1.0f;
      const Operand out = rows_of_head(in_.out, row, 1, item_.head, dim_, sums_ + index * dim_);
      if (out.data != sums_ + index * dim_) std::copy_n(out.data, dim_, sums_ + index * dim_);
    }
  }

  void add_keys(int64_t key, int64_t count) {
    const AttentionArgs& args = in_.args;
    const int64_t kv_head = item_.head / (args.heads / args.kv_heads), row = block_.kv_begin + key;
    const Operand keys = rows_of_head(in_.k, row, count, kv_head, dim_, keys_);
    transpose_block(keys.data, keys.stride, count, dim_, keys_transposed_, kTileStride);
    const Operand values = rows_of_head(in_.v, row, count, kv_head, dim_, values_);
    for (int64_t query = item_.begin; query < item_.end; query += kQueryTile) {
      const int64_t queries = std::min(kQueryTile, item_.end - query);
      const int64_t seen = std::min(count, block_.visible(query + queries - 1) - key);
      if (seen > 0) add_tile(query, queries, key, seen, values);
    }
  }

  // `seen`: keys of the tile that the last of the queries sees.
  void add_tile(int64_t query, int64_t queries, int64_t key, int64_t seen, const Operand& values) {
    const Operand q = rows_of_head(in_.q, block_.q_begin + query, queries, item_.head, dim_, queries_);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim_));
    sgemm({queries, seen, dim_}, scale, q, {keys_transposed_, kTileStride}, 0.0f, {scores_, kTileStride});
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t own = std::clamp<int64_t>(block_.visible(query + i) - key, 0, seen);
      float* const row = scores_ + i * kTileStride;
      if (own > 0) update_softmax(query + i, key, row, own);
      std::fill(row + own, row + seen, 0.0f);
    }
    float* const sums = sums_ + (query - item_.begin) * dim_;
    sgemm({queries, dim_, seen}, 1.0f, {scores_, kTileStride}, values, key == 0 && !begun() ? 0.0f : 1.0f,
          {sums, dim_});
  }

  // Scores become exp(score - largest so far), and what was summed before is brought to the same scale.
  void update_softmax(int64_t query, int64_t key, float* row, int64_t count) {
    const int64_t index = query - item_.begin;
    const float largest = std::max(largest_[index], max_row(row, count));
    const float rescale = std::exp(largest_[index] - largest);
    totals_[index] = totals_[index] * rescale + exp_row(row, count, largest);
    if ((key > 0 || begun()) && rescale != 1.0f) scale_row(sums_ + index * dim_, dim_, rescale);
    largest_[index] = largest;
    if (in_.args.dropout.rate == 0.0f) return;
    std::array<float, kKeyTile> factors;
    fill_keep_factors(in_.args.dropout, block_.q_begin + query, in_.args.first_head + item_.head,
                      block_.first_key + key, count, factors.data());
    multiply_row(factors.data(), row, count);
  }

  void finish(int64_t query) {
    const int64_t row = block_.q_begin + query, index = query - item_.begin;
    float* const sum = sums_ + index * dim_;
    if (totals_[index] > 0) scale_row(sum, dim_, 1.0f / totals_[index]);
    if (in_.out.dtype == DType::kBF16)
      narrow_row(sum, in_.out.row<BF16>(row) + item_.head * dim_, dim_);
    else
      std::copy_n(sum, dim_, in_.out.row<float>(row) + item_.head * dim_);
    in_.lse.row<float>(row)[item_.head] = largest_[index] + std::log(totals_[index]);
  }

  const Inputs& in_;
  int64_t dim_;
  Item item_{};
  Block block_{};
  float *keys_, *keys_transposed_, *values_, *queries_, *scores_;  // one tile
  float *sums_, *largest_, *totals_;                               // per query of the item
};

}  // namespace

int64_t attention_forward_member_bytes(int64_t head_dim) {
  return kScratchLine + 3 * round_to_line(4 * kTileStride * head_dim) + round_to_line(4 * kQueryTile * head_dim) +
         round_to_line(4 * kQueryTile * kTileStride) + round_to_line(4 * kQueryChunk * head_dim) +
         2 * round_to_line(4 * kQueryChunk);
}

void attention_forward(const Context& context, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                       const TensorView& v, const TensorView& out, const TensorView& lse) {
  check_attention(args, q, k, v);
  STRATA_CHECK(out.rows == q.rows && out.cols == q.cols && (out.dtype == q.dtype || out.dtype == DType::kF32) &&
                   lse.rows == q.rows && lse.cols == args.heads,
               "out ({}, {}) and lse ({}, {}) for {} queries of {} heads", out.rows, out.cols, lse.rows, lse.cols,
               q.rows, args.heads);
  const Inputs inputs{args, q, k, v, out, lse};
  const int64_t items = num_items(args);
  std::atomic<int64_t> next{0};
  context.team.run([&](int member, int) {
    int64_t index = next.fetch_add(1);
    if (index >= items) return;
    Forward forward(inputs, scratch_of_member(context, member));
    for (; index < items; index = next.fetch_add(1)) forward.compute(item_of(args, index));
  });
}

}  // namespace strata::kernels
