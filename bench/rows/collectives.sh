#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between two MPI ranks against plain loops over the same bytes.
set -euo pipefail
exec python3 bench/collectives_bench.py
