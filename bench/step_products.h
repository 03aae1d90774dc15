// SPDX-License-Identifier: Apache-2.0
// The matrix products of one training step, as sizes: linear layers and head forward and backward, and the products of
// causal attention, whose squares are multiplied whole and count with the share that is on or below the diagonal.
// Nothing is recomputed and nothing else counted, like step_flops of bench/workloads.py, with which the sum must agree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/kernels/kernels.h"

namespace strata::bench {

struct BenchWorkload {
  std::string name;
  ModelSpec model;  // sizes only
  int64_t seq = 0;
  int64_t batch = 0;
};

// Those of bench/workloads.py.
std::span<const BenchWorkload> bench_workloads();

// c (m, n) = or += op(a) * op(b), `parallel` independent ones of them side by side, all of that `times` in a step.
struct StepProduct {
  std::string name;
  int64_t m = 0, n = 0, k = 0;
  kernels::Trans trans_a = kernels::Trans::kNo;
  kernels::Trans trans_b = kernels::Trans::kNo;
  kernels::Write write = kernels::Write::kSet;
  int64_t times = 1;
  int64_t parallel = 1;
  double counted_share = 1.0;  // causal: the part of the square of scores on or below the diagonal

  double counted_flops() const;  // of all of them in a step
};

std::vector<StepProduct> step_products(const BenchWorkload& workload);

}  // namespace strata::bench
