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

}  // namespace strata::kernels::ref
