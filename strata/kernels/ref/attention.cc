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

// One query row of one head and the keys it sees.
struct Query {
  int64_t row, head, kv_head, first_key, num_keys;
};

template <typename Body>
void for_each_query(const AttentionArgs& args, Body body) {
  for (size_t sequence = 0; sequence + 1 < args.q_offsets.size(); ++sequence) {
    const int64_t begin = args.q_offsets[sequence], end = args.q_offsets[sequence + 1];
    const int64_t kv_begin = args.kv_offsets[sequence], kv_length = args.kv_offsets[sequence + 1] - kv_begin;
    for (int64_t row = begin; row < end; ++row)
      for (int64_t head = 0; head < args.heads; ++head)
        body(Query{row, head, head / (args.heads / args.kv_heads), kv_begin,
                   kv_length - (end - begin) + row - begin + 1});
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
  std::vector<double> result(query.num_keys);
  for (int64_t key = 0; key < query.num_keys; ++key)
    result[key] =
        dot(args, q, query.row, query.head, k, query.first_key + key, query.kv_head) / std::sqrt(args.head_dim);
  return result;
}

// What dropout multiplies the probability of a key by.
double keep_factor(const AttentionArgs& args, const Query& query, int64_t key) {
  const Dropout& dropout = args.dropout;
  if (dropout.rate == 0.0f) return 1.0;
  const uint64_t column = static_cast<uint64_t>(args.first_head + query.head) << 32 | static_cast<uint64_t>(key);
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

void attention_forward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                       const TensorView& v, const TensorView& out, const TensorView& lse) {
  Sum sum(args, out);
  for_each_query(args, [&](const Query& query) {
    const std::vector<double> row = scores(args, query, q, k);
    const double largest = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const double score : row) total += std::exp(score - largest);
    write_element(lse, query.row, query.head, largest + std::log(total));
    for (int64_t key = 0; key < query.num_keys; ++key)
      sum.add(query.row, query.head, std::exp(row[key] - largest) / total * keep_factor(args, query, key), v,
              query.first_key + key, query.kv_head);
  });
  sum.write(out);
}

void attention_backward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out, const TensorView& lse, const TensorView& dout,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv) {
  Sum q_sum(args, dq), k_sum(args, dk), v_sum(args, dv);
  for_each_query(args, [&](const Query& query) {
    const std::vector<double> row = scores(args, query, q, k);
    const double delta = dot(args, dout, query.row, query.head, out, query.row, query.head);
    for (int64_t key = 0; key < query.num_keys; ++key) {
      const int64_t kv_row = query.first_key + key;
      const double probability = std::exp(row[key] - read_element(lse, query.row, query.head));
      const double keep = keep_factor(args, query, key);
      const double dprobability = keep * dot(args, dout, query.row, query.head, v, kv_row, query.kv_head);
      const double dscore = probability * (dprobability - delta) / std::sqrt(args.head_dim);
      v_sum.add(kv_row, query.kv_head, probability * keep, dout, query.row, query.head);
      k_sum.add(kv_row, query.kv_head, dscore, q, query.row, query.head);
      q_sum.add(query.row, query.head, dscore, k, kv_row, query.kv_head);
    }
  });
  q_sum.write(dq);
  k_sum.write(dk);
  v_sum.write(dv);
}

}  // namespace strata::kernels::ref
