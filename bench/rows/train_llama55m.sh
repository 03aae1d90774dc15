#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Step time and memory against PyTorch: llama55m of bench/workloads.py.
set -euo pipefail
STRATA_VENV=$(scripts/bench_environment.sh)
export STRATA_VENV
exec python3 bench/train_bench.py llama55m
