#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plan invariance for 5,000 random models and plans of up to eight ranks (ranks as threads): SGD and AdamW close to the
# training of one rank, ZeRO stages and recomputation bit-equal (tests/plan_checks.h). A seed is a draw: seeds FIRST to
# FIRST + 4999, in blocks of 100. Every block's result is kept beside the program, by its checksum: started again, the
# script goes on where it was. About ten minutes on two cores.
# Usage: proofs/plan_invariance.sh [FIRST]   (after `make build`; DRAWS names another program)
set -euo pipefail

draws=${DRAWS:-$(dirname "$0")/../build/tests/plan_invariance_draws}
first=${1:-1}
total=5000
block=100
results=$(dirname "$draws")/plan_invariance_$(sha256sum < "$draws" | cut -c1-16)
mkdir -p "$results"

held=0
for ((begin = first; begin < first + total; begin += block)); do
  file=$results/$begin
  if [ ! -e "$file" ]; then
    "$draws" "$begin" $((begin + block - 1)) > "$file.part" || true
    if ! tail -1 "$file.part" | grep -q '^seeds '; then
      echo "seeds $begin to $((begin + block - 1)): the program ended early" >> "$file.part"
    fi
    mv "$file.part" "$file"
  fi
  cat "$file"
  held=$((held + $(sed -n 's/^seeds .*: \([0-9]*\) of .* hold$/\1/p' "$file")))
done

verdict=$([ $held = $total ] && echo ok || echo short)
echo "proof plan_invariance $held/$total $total/$total $verdict"
[ $verdict = ok ]
