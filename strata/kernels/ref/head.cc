// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/kernels/ref/element.h"
#include "strata/kernels/ref/products.h"

namespace strata::kernels::ref {
namespace {

std::vector<double> logits_of(const TensorView& x, const TensorView& weight, int64_t token) {
  std::vector<double> logits(weight.rows);
  for (int64_t word = 0; word < weight.rows; ++word)
    for (int64_t i = 0; i < x.cols; ++i) logits[word] += read_element(x, token, i) * read_element(weight, word, i);
  return logits;
}

double log_sum_exp(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - largest);
  return largest + std::log(total);
}

}  // namespace

void head_forward(const Context&, const HeadArgs& args, const TensorView& x, const TensorView& weight,
                  double* loss_sum) {
  for (int64_t token = 0; token < x.rows; ++token) {
    if (args.targets[token] < 0) continue;
    const std::vector<double> logits = logits_of(x, weight, token);
    *loss_sum += log_sum_exp(logits) - logits[args.targets[token]];
  }
}

void head_forward_backward(const Context& context, const HeadArgs& args, float gradient_scale, const TensorView& x,
                           const TensorView& weight, double* loss_sum, const TensorView& dx, const TensorView& dweight,
                           Write write) {
  ref::head_forward(context, args, x, weight, loss_sum);
  std::vector<double> weight_sum(weight.rows * weight.cols);
  for (int64_t token = 0; token < x.rows; ++token) {
    const std::vector<double> logits = logits_of(x, weight, token);
    const double total = log_sum_exp(logits);
    std::vector<double> x_sum(x.cols);
    for (int64_t word = 0; word < weight.rows && args.targets[token] >= 0; ++word) {
      const double dlogit =
          gradient_scale * (std::exp(logits[word] - total) - (word == args.targets[token] ? 1.0 : 0.0));
      for (int64_t i = 0; i < x.cols; ++i) {
        x_sum[i] += dlogit * read_element(weight, word, i);
        weight_sum[word * x.cols + i] += dlogit * read_element(x, token, i);
      }
    }
    for (int64_t i = 0; i < x.cols; ++i) write_element(dx, token, i, x_sum[i]);
  }
  for (int64_t word = 0; word < dweight.rows; ++word)
    for (int64_t i = 0; i < dweight.cols; ++i)
      write_element(
          dweight, word, i,
          weight_sum[word * dweight.cols + i] + (write == Write::kAdd ? read_element(dweight, word, i) : 0.0));
}

void head_logits(const Context&, const TensorView& x, const TensorView& weight, const TensorView& logits) {
  for (int64_t token = 0; token < x.rows; ++token) {
    const std::vector<double> row = logits_of(x, weight, token);
    for (int64_t word = 0; word < weight.rows; ++word) write_element(logits, token, word, row[word]);
  }
}

void head_statistics(const Context& context, const HeadTile& tile, const TensorView& x, const TensorView& weight,
                     const TensorView& logits, const TensorView& statistics) {
  ref::head_logits(context, x, weight, logits);
  for (int64_t token = 0; token < x.rows; ++token) {
    if (tile.targets[token] < 0) continue;
    const std::vector<double> row = logits_of(x, weight, token);
    const double largest = *std::max_element(row.begin(), row.end());
    const int64_t target = tile.targets[token] - tile.first_word;
    write_element(statistics, token, 0, largest);
    write_element(statistics, token, 1, std::exp(log_sum_exp(row) - largest));
    write_element(statistics, token, 2, target >= 0 && target < weight.rows ? row[target] : 0.0);
  }
}

namespace {

// Over all parts: the log of the sum of exp of the logits, and the target's logit.
struct Combined {
  double log_sum = 0, target = 0;
};

Combined combine(const TensorView& statistics, int64_t tokens, int64_t token) {
  std::vector<double> log_sums;
  Combined combined;
  for (int64_t row = token; row < statistics.rows; row += tokens) {
    log_sums.push_back(read_element(statistics, row, 0) + std::log(read_element(statistics, row, 1)));
    combined.target += read_element(statistics, row, 2);
  }
  combined.log_sum = log_sum_exp(log_sums);
  return combined;
}

}  // namespace

void head_loss(const HeadTile& tile, const TensorView& statistics, double* loss_sum) {
  const auto tokens = static_cast<int64_t>(tile.targets.size());
  for (int64_t token = 0; token < tokens; ++token) {
    if (tile.targets[token] < 0) continue;
    const Combined combined = combine(statistics, tokens, token);
    *loss_sum += combined.log_sum - combined.target;
  }
}

void head_gradients(const Context& context, const HeadTile& tile, float gradient_scale, const TensorView& x,
                    const TensorView& weight, const TensorView& logits, const TensorView& statistics,
                    const TensorView& dx, const TensorView& dweight, Write write) {
  for (int64_t token = 0; token < x.rows; ++token)
    for (int64_t word = 0; word < weight.rows; ++word) {
      const bool counted = tile.targets[token] >= 0;
      const double probability =
          counted ? std::exp(read_element(logits, token, word) - combine(statistics, x.rows, token).log_sum) : 0.0;
      const double target = counted && word == tile.targets[token] - tile.first_word ? 1.0 : 0.0;
      write_element(logits, token, word, gradient_scale * (probability - target));
    }
  ref::linear_backward_input(context, logits, weight, dx);
  ref::linear_backward_weight(context, logits, x, dweight, {}, write);
}

}  // namespace strata::kernels::ref
