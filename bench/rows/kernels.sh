#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The peak of the machine, then rates of the products and memory traffic of everything else. Prints; has no goals.
set -euo pipefail
build/bench/fma_peak
for name in kernels_bench elementwise_bench; do
  "build/bench/$name" --benchmark_min_time=0.2 --benchmark_counters_tabular=true
done
