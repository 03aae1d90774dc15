// SPDX-License-Identifier: Apache-2.0
// Dropout in the form the vector loops want: its rate as an integer threshold on the upper 24 bits of a word.
#pragma once

#include <cmath>
#include <cstdint>

#include "strata/kernels/kernels.h"

namespace strata::kernels {

struct DropoutState {
  uint64_t key = 0;
  const int64_t* tokens = nullptr;
  int32_t threshold = 0;  // keep when the upper 24 bits are at least this; 0: no dropout
  float scale = 1.0f;
};

inline DropoutState make_dropout_state(const Dropout& dropout, int64_t rows) {
  if (dropout.rate == 0.0f) return {};
  STRATA_CHECK(dropout.rate > 0.0f && dropout.rate < 1.0f, "dropout rate {}", dropout.rate);
  STRATA_CHECK(static_cast<int64_t>(dropout.tokens.size()) == rows, "{} token indices for {} rows",
               dropout.tokens.size(), rows);
  // word * 2^-24 >= rate, both sides exact in f32, is word >= ceil(rate * 2^24).
  const auto threshold = static_cast<int32_t>(std::ceil(dropout.rate * 0x1p24f));
  return {dropout.key, dropout.tokens.data(), threshold, 1.0f / (1.0f - dropout.rate)};
}

}  // namespace strata::kernels
