#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Step time and planned memory with bf16 storage against f32.
set -euo pipefail
exec python3 bench/bf16_bench.py
