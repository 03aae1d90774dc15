// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/kernels/cpu/rows.h"
#include "strata/kernels/cpu/scratch.h"
#include "strata/kernels/kernels.h"

namespace strata::kernels {
namespace {

constexpr int64_t kBlock = 2048;  // read once for the largest and once for the sum, from the first-level cache

double log_sum_exp(const float* row, int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    const float before = largest;
    largest = std::max(largest, max_row(row + begin, block));
    total = total * std::exp(static_cast<double>(before) - largest) + sum_exp_row(row + begin, block, largest);
  }
  return largest + std::log(total);
}

// The logits of a tile of tokens and what follows from them. Tokens are independent of each other and of the team.
class Head {
 public:
  Head(const Context& context, const HeadArgs& args, const TensorView& x, const TensorView& weight)
      : team_(context.team), args_(args), x_(x), weight_(weight) {
    STRATA_CHECK(x.cols == weight.cols && x.dtype == weight.dtype, "head of x ({}, {}) {} and weight ({}, {}) {}",
                 x.rows, x.cols, dtype_name(x.dtype), weight.rows, weight.cols, dtype_name(weight.dtype));
    STRATA_CHECK(static_cast<int64_t>(args.targets.size()) == x.rows, "{} targets for {} tokens", args.targets.size(),
                 x.rows);
    STRATA_CHECK(args.tile_tokens > 0, "a tile of {} tokens", args.tile_tokens);
    for (const int32_t target : args.targets)
      STRATA_CHECK(target >= -1 && target < weight.rows, "target {} is outside [-1, {})", target, weight.rows);
    Scratch rest(context.scratch);
    const int64_t tile = std::min(args.tile_tokens, x.rows);
    logits_ = rest.take<float>(tile * weight.rows);
    log_sums_ = rest.take<double>(tile);
    rest_ = rest.rest();
  }

  // loss_sum += the losses of the tile, token by token. Leaves the logits.
  void forward(int64_t begin, int64_t count, double* loss_sum) {
    const TensorView logits(logits_, DType::kF32, count, weight_.rows);
    head_logits(product_context(), x_.slice_rows(begin, count), weight_, logits);
    team_.parallel_for(count, 1, [&](int64_t first, int64_t last) {
      for (int64_t token = first; token < last; ++token) reduce(logits.row<float>(token), begin + token, token);
    });
    for (int64_t token = 0; token < count; ++token)
      if (args_.targets[begin + token] >= 0)
        *loss_sum += log_sums_[token] - logits.row<float>(token)[args_.targets[begin + token]];
  }

  // Turns the logits of the tile into their gradients, in the storage of x.
  TensorView backward(int64_t begin, int64_t count, float scale) {
    team_.parallel_for(count, 1, [&](int64_t first, int64_t last) {
      for (int64_t token = first; token < last; ++token) differentiate(begin + token, token, scale);
    });
    const bool narrow = x_.dtype == DType::kBF16;  // a row of bf16 at the start of every row of floats
    return {logits_, x_.dtype, count, weight_.rows, narrow ? 2 * weight_.rows : weight_.rows};
  }

  Context product_context() const { return {team_, rest_}; }

 private:
  void reduce(const float* logits, int64_t token, int64_t index) {
    if (args_.targets[token] >= 0) log_sums_[index] = log_sum_exp(logits, weight_.rows);
  }

  void differentiate(int64_t token, int64_t index, float scale) {
    float* const row = logits_ + index * weight_.rows;
    const int32_t target = args_.targets[token];
    if (target < 0) {
      std::fill_n(row, weight_.rows, 0.0f);
    } else {
      scaled_exp_row(row, weight_.rows, static_cast<float>(log_sums_[index]), scale);
      row[target] -= scale;
    }
    if (x_.dtype == DType::kBF16) narrow_row(row, reinterpret_cast<BF16*>(row), weight_.rows);
  }

  Team& team_;
  const HeadArgs& args_;
  const TensorView& x_;
  const TensorView& weight_;
  float* logits_;     // (tile, vocab)
  double* log_sums_;  // (tile): log of the sum of exp of the logits
  std::span<std::byte> rest_;
};

}  // namespace

void head_forward(const Context& context, const HeadArgs& args, const TensorView& x, const TensorView& weight,
                  double* loss_sum) {
  Head head(context, args, x, weight);
  for (int64_t begin = 0; begin < x.rows; begin += args.tile_tokens)
    head.forward(begin, std::min(args.tile_tokens, x.rows - begin), loss_sum);
}

void head_forward_backward(const Context& context, const HeadArgs& args, float gradient_scale, const TensorView& x,
                           const TensorView& weight, double* loss_sum, const TensorView& dx, const TensorView& dweight,
                           Write write) {
  Head head(context, args, x, weight);
  const Context products = head.product_context();
  if (x.rows == 0) linear_backward_weight(products, {nullptr, x.dtype, 0, weight.rows}, x, dweight, {}, write);
  for (int64_t begin = 0; begin < x.rows; begin += args.tile_tokens) {
    const int64_t count = std::min(args.tile_tokens, x.rows - begin);
    head.forward(begin, count, loss_sum);
    const TensorView dlogits = head.backward(begin, count, gradient_scale);
    linear_backward_input(products, dlogits, weight, dx.slice_rows(begin, count));
    linear_backward_weight(products, dlogits, x.slice_rows(begin, count), dweight, {},
                           begin == 0 ? write : Write::kAdd);
  }
}

void head_logits(const Context& context, const TensorView& x, const TensorView& weight, const TensorView& logits) {
  gemm(context, {.a = x, .b = weight, .c = logits, .trans_b = Trans::kYes});
}

int64_t head_scratch_bytes(DType dtype, int64_t tile_tokens, int64_t hidden, int64_t vocab, int num_threads) {
  const int64_t products = std::max({gemm_scratch_bytes(dtype, tile_tokens, vocab, hidden, num_threads),
                                     gemm_scratch_bytes(dtype, tile_tokens, hidden, vocab, num_threads),
                                     gemm_scratch_bytes(dtype, vocab, hidden, tile_tokens, num_threads)});
  return kScratchLine + round_to_line(4 * tile_tokens * vocab) + round_to_line(8 * tile_tokens) + products;
}

}  // namespace strata::kernels
