#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collectives and training steps of two ranks over slow TCP links between namespaces.
set -euo pipefail
exec python3 bench/links_bench.py
