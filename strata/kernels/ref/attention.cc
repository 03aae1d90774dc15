// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/base/random.h"
#include "strata/kernels/ref/element.h"
#include "strata/kernels/ref/products.h"

namespace strata::kernels::ref {
namespace {

struct Key {
  int64_t row, position;
};

// One query row of one head and the keys it sees.
struct Query {
  int64_t row, head, kv_head;
  std::vector<Key> keys;
};

// Whether the query with this index in its piece sees the key with this one.
bool sees(const AttentionArgs& args, size_t q_piece, int64_t query, size_t kv_piece, int64_t key) {
  if (!args.q_positions.empty()) return args.kv_positions[kv_piece] + key <= args.q_positions[q_piece] + query;
  const int64_t queries = args.q_offsets[q_piece + 1] - args.q_offsets[q_piece];
  const int64_t keys = args.kv_offsets[kv_piece + 1] - args.kv_offsets[kv_piece];
  return key <= keys - queries + query;
}

std::vector<Key> keys_of(const AttentionArgs& args, size_t q_piece, int64_t query) {
  std::vector<Key> keys;
  const auto pieces = static_cast<size_t>(args.pieces);
  for (size_t piece = q_piece / pieces * pieces, end = piece + pieces; piece < end; ++piece)
    for (int64_t key = 0; key < args.kv_offsets[piece + 1] - args.kv_offsets[piece]; ++key)
      if (sees(args, q_piece, query, piece, key))
        keys.push_back(
            {args.kv_offsets[piece] + key, (args.kv_positions.empty() ? 0 : args.kv_positions[piece]) + key});
  return keys;
}

template <typename Body>
void for_each_query(const AttentionArgs& args, Body body) {
  for (size_t piece = 0; piece + 1 < args.q_offsets.size(); ++piece)
    for (int64_t row = args.q_offsets[piece]; row < args.q_offsets[piece + 1]; ++row) {
      const std::vector<Key> keys = keys_of(args, piece, row - args.q_offsets[piece]);
      for (int64_t head = 0; head < args.heads; ++head)
        body(Query{row, head, head / (args.heads / args.kv_heads), keys});
    }
}

double dot(const AttentionArgs& args, const TensorView& a, int64_t a_row, int64_t a_head, const TensorView& b,
           int64_t b_row, int64_t b_head) {
  double sum = 0;
  for (int64_t i = 0; i < args.head_dim; ++i)
    sum += read_element(a, a_row, a_head * args.head_dim + i) * read_element(b, b_row, b_head * args.head_dim + i);
  return sum;
}

std::vector<double> scores(const AttentionArgs& args, const Query& query, const TensorView& q, const TensorView& k) {
  std::vector<double> result;
  for (const Key& key : query.keys)
    result.push_back(dot(args, q, query.row, query.head, k, key.row, query.kv_head) / std::sqrt(args.head_dim));
  return result;
}

// What dropout multiplies the probability of a key by.
double keep_factor(const AttentionArgs& args, const Query& query, const Key& key) {
  const Dropout& dropout = args.dropout;
  if (dropout.rate == 0.0f) return 1.0;
  const uint64_t column =
      static_cast<uint64_t>(args.first_head + query.head) << 32 | static_cast<uint64_t>(key.position);
  const uint32_t word = philox(dropout.key, static_cast<uint64_t>(dropout.tokens[query.row]), column / 4)[column % 4];
  return uniform_from(word) >= dropout.rate ? 1.0f / (1.0f - dropout.rate) : 0.0;
}

// to (rows, heads of head_dim) at one row and head += factor * from at one row and head, in double.
class Sum {
 public:
  Sum(const AttentionArgs& args, const TensorView& like)
      : args_(args), cols_(like.cols), values_(like.rows * like.cols) {}

  void add(int64_t row, int64_t head, double factor, const TensorView& from, int64_t from_row, int64_t from_head) {
    for (int64_t i = 0; i < args_.head_dim; ++i)
      values_[row * cols_ + head * args_.head_dim + i] +=
          factor * read_element(from, from_row, from_head * args_.head_dim + i);
  }

  void start(const TensorView& from) {
    for (int64_t row = 0; row < from.rows; ++row)
      for (int64_t col = 0; col < from.cols; ++col) values_[row * cols_ + col] = read_element(from, row, col);
  }

  void write(const TensorView& to) const {
    for (int64_t row = 0; row < to.rows; ++row)
      for (int64_t col = 0; col < to.cols; ++col) write_element(to, row, col, values_[row * cols_ + col]);
  }

 private:
  const AttentionArgs& args_;
  int64_t cols_;
  std::vector<double> values_;
};

}  // namespace

// What out and lse hold of other keys counts as one more key, whose score is lse.
void attention_forward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                       const TensorView& v, const TensorView& out, const TensorView& lse) {
  const bool adds = args.write == Write::kAdd;
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  Sum sum(args, out);
  for_each_query(args, [&](const Query& query) {
    const std::vector<double> row = scores(args, query, q, k);
    const double before = adds ? read_element(lse, query.row, query.head) : kNothing;
    double largest = before;
    for (const double score : row) largest = std::max(largest, score);
    if (largest == kNothing) return write_element(lse, query.row, query.head, kNothing);
    double total = std::exp(before - largest);
    for (const double score : row) total += std::exp(score - largest);
    write_element(lse, query.row, query.head, largest + std::log(total));
    if (adds) sum.add(query.row, query.head, std::exp(before - largest) / total, out, query.row, query.head);
    for (size_t index = 0; index < row.size(); ++index) {
      const Key& key = query.keys[index];
      sum.add(query.row, query.head, std::exp(row[index] - largest) / total * keep_factor(args, query, key), v, key.row,
              query.kv_head);
    }
  });
  sum.write(out);
}

void attention_backward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out, const TensorView& lse, const TensorView& dout,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv) {
  Sum q_sum(args, dq), k_sum(args, dk), v_sum(args, dv);
  if (args.write == Write::kAdd) q_sum.start(dq), k_sum.start(dk), v_sum.start(dv);
  for_each_query(args, [&](const Query& query) {
    const std::vector<double> row = scores(args, query, q, k);
    const double delta = dot(args, dout, query.row, query.head, out, query.row, query.head);
    for (size_t index = 0; index < row.size(); ++index) {
      const Key& key = query.keys[index];
      const double probability = std::exp(row[index] - read_element(lse, query.row, query.head));
      const double keep = keep_factor(args, query, key);
      const double dprobability = keep * dot(args, dout, query.row, query.head, v, key.row, query.kv_head);
      const double dscore = probability * (dprobability - delta) / std::sqrt(args.head_dim);
      v_sum.add(key.row, query.kv_head, probability * keep, dout, query.row, query.head);
      k_sum.add(key.row, query.kv_head, dscore, q, query.row, query.head);
      q_sum.add(query.row, query.head, dscore, k, key.row, query.kv_head);
    }
  });
  q_sum.write(dq);
  k_sum.write(dk);
  v_sum.write(dv);
}

}  // namespace strata::kernels::ref
