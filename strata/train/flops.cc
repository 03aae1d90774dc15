// SPDX-License-Identifier: Apache-2.0
#include "strata/train/flops.h"

namespace strata {
namespace {

// Weights that every token is multiplied with; a tied head counts, it is a product all the same.
double weights_in_products(const ModelSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden);
  const double attention = hidden * static_cast<double>(spec.qkv_width() + spec.attended_width());
  const double mlp = hidden * static_cast<double>(spec.up_width() + spec.ffn);
  return static_cast<double>(spec.num_blocks) * (attention + mlp) + hidden * static_cast<double>(spec.vocab);
}

}  // namespace

double step_flops(const ModelSpec& spec, std::span<const int64_t> sequence_lengths) {
  double tokens = 0, pairs = 0;  // pairs: (query, key) with key <= query
  for (const int64_t length : sequence_lengths) {
    const auto n = static_cast<double>(length);
    tokens += n;
    pairs += n * (n + 1) / 2;
  }
  const double products = 2 * tokens * weights_in_products(spec);
  const double attention_width = static_cast<double>(spec.num_blocks * spec.heads * spec.head_dim);
  const double attention = 2 * 2 * attention_width * pairs;  // scores, and probabilities times values
  return 3 * (products + attention);
}

}  // namespace strata
