// SPDX-License-Identifier: Apache-2.0
// One single-precision product on the calling thread: c = alpha * op(a) * op(b) + beta * c. To be called by members of
// a Team, where oneDNN uses one thread. Memory is row-major; the result depends on the sizes, not on the caller.
#pragma once

#include <cstdint>

#include "strata/kernels/kernels.h"

namespace strata::kernels {

struct ProductSize {
  int64_t m, n, k;
};

// What is multiplied, as stored; with Trans::kYes its transpose is meant.
struct Operand {
  const float* data;
  int64_t stride;  // elements from one row to the next
  Trans trans = Trans::kNo;
};

struct Target {
  float* data;
  int64_t stride;
};

void sgemm(const ProductSize& size, float alpha, const Operand& a, const Operand& b, float beta, const Target& c);

}  // namespace strata::kernels
