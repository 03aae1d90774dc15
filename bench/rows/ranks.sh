#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two ranks of one thread with ZeRO 1 and 3 against one rank of two threads.
set -euo pipefail
exec python3 bench/ranks_bench.py
