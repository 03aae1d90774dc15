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

// What a part of the vocabulary says about a token, as it lies in a row of statistics.
struct Statistics {
  float largest;
  float sum;     // of exp(logit - largest)
  float target;  // the target's logit, 0 where it is in another part
};
static_assert(sizeof(Statistics) == kHeadStatistics * sizeof(float));

Statistics& statistics_in(const TensorView& rows, int64_t row) {
  return *reinterpret_cast<Statistics*>(rows.row<float>(row));
}

Statistics statistics_of(const float* row, int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    const float before = largest;
    largest = std::max(largest, max_row(row + begin, block));
    total = total * std::exp(static_cast<double>(before) - largest) + sum_exp_row(row + begin, block, largest);
  }
  return {largest, static_cast<float>(total), 0.0f};
}

// The statistics of the whole vocabulary, from those of its parts in order.
struct WholeStatistics {
  double log_sum = 0;  // of exp of the logits
  double target = 0;
};

WholeStatistics combine(const TensorView& statistics, int64_t tokens, int64_t token) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  WholeStatistics whole;
  for (int64_t row = token; row < statistics.rows; row += tokens) {
    const Statistics& part = statistics_in(statistics, row);
    largest = std::max<double>(largest, part.largest);
    whole.target += part.target;
  }
  for (int64_t row = token; row < statistics.rows; row += tokens) {
    const Statistics& part = statistics_in(statistics, row);
    sum += part.sum * std::exp(part.largest - largest);
  }
  whole.log_sum = largest + std::log(sum);
  return whole;
}

void check_tile(const HeadTile& tile, const TensorView& x, const TensorView& weight) {
  STRATA_CHECK(x.cols == weight.cols && x.dtype == weight.dtype, "head of x ({}, {}) {} and weight ({}, {}) {}", x.rows,
               x.cols, dtype_name(x.dtype), weight.rows, weight.cols, dtype_name(weight.dtype));
  STRATA_CHECK(static_cast<int64_t>(tile.targets.size()) == x.rows, "{} targets for {} tokens", tile.targets.size(),
               x.rows);
  STRATA_CHECK(tile.first_word >= 0 && tile.first_word + weight.rows <= tile.num_words,
               "{} words from {} on of a vocabulary of {}", weight.rows, tile.first_word, tile.num_words);
  for (const int32_t target : tile.targets)
    STRATA_CHECK(target >= -1 && target < tile.num_words, "target {} is outside [-1, {})", target, tile.num_words);
}

void check_statistics(const HeadTile& tile, const TensorView& statistics) {
  const auto tokens = static_cast<int64_t>(tile.targets.size());
  STRATA_CHECK(statistics.cols == kHeadStatistics && statistics.dtype == DType::kF32 && statistics.contiguous() &&
                   (tokens == 0 ? statistics.rows == 0 : statistics.rows % tokens == 0),
               "statistics ({}, {}) of {} tokens", statistics.rows, statistics.cols, tokens);
}

// One row of logits becomes their gradients, in the storage of x.
void differentiate(const HeadTile& tile, const TensorView& statistics, float scale, DType dtype,
                   const TensorView& logits, int64_t token) {
  float* const row = logits.row<float>(token);
  const int64_t target = tile.targets[token] - tile.first_word;
  if (tile.targets[token] < 0) {
    std::fill_n(row, logits.cols, 0.0f);
  } else {
    scaled_exp_row(row, logits.cols, static_cast<float>(combine(statistics, logits.rows, token).log_sum), scale);
    if (target >= 0 && target < logits.cols) row[target] -= scale;
  }
  if (dtype == DType::kBF16) narrow_row(row, reinterpret_cast<BF16*>(row), logits.cols);
}

// The whole vocabulary: tiles one after the other, their logits and statistics in scratch.
class Tiles {
 public:
  Tiles(const Context& context, const HeadArgs& args, const TensorView& x, const TensorView& weight)
      : team_(context.team), args_(args), x_(x), weight_(weight) {
    check_tile({args.targets, 0, weight.rows}, x, weight);
    STRATA_CHECK(args.tile_tokens > 0, "a tile of {} tokens", args.tile_tokens);
    Scratch rest(context.scratch);
    const int64_t tile = std::min(args.tile_tokens, x.rows);
    logits_ = rest.take<float>(tile * weight.rows);
    statistics_ = rest.take<Statistics>(tile);
    rest_ = rest.rest();
  }

  // Calls body(tile, x of the tile, logits, statistics, first token) behind the loss of every tile.
  template <typename Body>
  void for_each(double* loss_sum, Body body) {
    for (int64_t begin = 0; begin < x_.rows; begin += args_.tile_tokens) {
      const int64_t count = std::min(args_.tile_tokens, x_.rows - begin);
      const HeadTile tile{args_.targets.subspan(begin, count), 0, weight_.rows};
      const TensorView logits(logits_, DType::kF32, count, weight_.rows);
      const TensorView statistics(statistics_, DType::kF32, count, kHeadStatistics);
      const TensorView x = x_.slice_rows(begin, count);
      head_statistics(product_context(), tile, x, weight_, logits, statistics);
      head_loss(tile, statistics, loss_sum);
      body(tile, x, logits, statistics, begin);
    }
  }

  Context product_context() const { return {team_, rest_}; }

 private:
  Team& team_;
  const HeadArgs& args_;
  const TensorView& x_;
  const TensorView& weight_;
  float* logits_;           // (tile, vocab)
  Statistics* statistics_;  // (tile)
  std::span<std::byte> rest_;
};

}  // namespace

void head_statistics(const Context& context, const HeadTile& tile, const TensorView& x, const TensorView& weight,
                     const TensorView& logits, const TensorView& statistics) {
  check_tile(tile, x, weight);
  check_statistics(tile, statistics);
  head_logits(context, x, weight, logits);
  context.team.parallel_for(x.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      if (tile.targets[token] < 0) continue;
      Statistics& entry = statistics_in(statistics, token);
      entry = statistics_of(logits.row<float>(token), weight.rows);
      const int64_t target = tile.targets[token] - tile.first_word;
      if (target >= 0 && target < weight.rows) entry.target = logits.row<float>(token)[target];
    }
  });
}

void head_loss(const HeadTile& tile, const TensorView& statistics, double* loss_sum) {
  check_statistics(tile, statistics);
  const auto tokens = static_cast<int64_t>(tile.targets.size());
  for (int64_t token = 0; token < tokens; ++token) {
    if (tile.targets[token] < 0) continue;
    const WholeStatistics whole = combine(statistics, tokens, token);
    *loss_sum += whole.log_sum - whole.target;
  }
}

void head_gradients(const Context& context, const HeadTile& tile, float gradient_scale, const TensorView& x,
                    const TensorView& weight, const TensorView& logits, const TensorView& statistics,
                    const TensorView& dx, const TensorView& dweight, Write write) {
  check_tile(tile, x, weight);
  check_statistics(tile, statistics);
  context.team.parallel_for(x.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token)
      differentiate(tile, statistics, gradient_scale, x.dtype, logits, token);
  });
  const bool narrow = x.dtype == DType::kBF16;  // a row of bf16 at the start of every row of floats
  const TensorView dlogits(logits.data, x.dtype, x.rows, weight.rows, narrow ? 2 * weight.rows : weight.rows);
  linear_backward_input(context, dlogits, weight, dx);
  linear_backward_weight(context, dlogits, x, dweight, {}, write);
}

void head_forward(const Context& context, const HeadArgs& args, const TensorView& x, const TensorView& weight,
                  double* loss_sum) {
  Tiles(context, args, x, weight).for_each(loss_sum, [](auto&&...) {});
}

void head_forward_backward(const Context& context, const HeadArgs& args, float gradient_scale, const TensorView& x,
                           const TensorView& weight, double* loss_sum, const TensorView& dx, const TensorView& dweight,
                           Write write) {
  Tiles tiles(context, args, x, weight);
  const Context products = tiles.product_context();
  if (x.rows == 0) linear_backward_weight(products, {nullptr, x.dtype, 0, weight.rows}, x, dweight, {}, write);
  tiles.for_each(loss_sum, [&](const HeadTile& tile, const TensorView& rows, const TensorView& logits,
                               const TensorView& statistics, int64_t begin) {
    head_gradients(products, tile, gradient_scale, rows, weight, logits, statistics, dx.slice_rows(begin, rows.rows),
                   dweight, begin == 0 ? write : Write::kAdd);
  });
}

void head_logits(const Context& context, const TensorView& x, const TensorView& weight, const TensorView& logits) {
  gemm(context, {.a = x, .b = weight, .c = logits, .trans_b = Trans::kYes});
}

int64_t head_tile_scratch_bytes(DType dtype, int64_t tile_tokens, int64_t hidden, int64_t words, int num_threads) {
  return std::max({gemm_scratch_bytes(dtype, tile_tokens, words, hidden, num_threads),
                   gemm_scratch_bytes(dtype, tile_tokens, hidden, words, num_threads),
                   gemm_scratch_bytes(dtype, words, hidden, tile_tokens, num_threads)});
}

int64_t head_scratch_bytes(DType dtype, int64_t tile_tokens, int64_t hidden, int64_t vocab, int num_threads) {
  return kScratchLine + round_to_line(4 * tile_tokens * vocab) +
         round_to_line(tile_tokens * static_cast<int64_t>(sizeof(Statistics))) +
         head_tile_scratch_bytes(dtype, tile_tokens, hidden, vocab, num_threads);
}

}  // namespace strata::kernels
