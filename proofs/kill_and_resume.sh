#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training process killed at any moment is resumed as if nothing had happened: the final weights, moments and log are
# bit-equal to those of a run that nobody killed. 20 trials, half of them in bf16; each kills (SIGKILL) a fresh run at a
# random moment between its start and its end, resumes it with the same command, and compares. About two minutes.
# Usage: proofs/kill_and_resume.sh [SEED]   (after `make build`; STRATA names another binary)
set -euo pipefail
source "$(dirname "$0")/tiny_run.bash"

strata=${STRATA:-$(dirname "$0")/../build/strata}
first_seed=${1:-$RANDOM}
trials=${TRIALS:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

write_tiny_run "$work" 64 96 3
# 300 windows of 64 bytes, the same everywhere; 157 steps of 4 run through them twice and into a third epoch.
cat > "$work/train.toml" <<TOML
[model]
config = "$work/config.json"
[data]
train = ["$work/train.txt"]
validation_fraction = 0.05
[batch]
micro = 2
accumulation = 2
[optimizer]
lr = 3e-3
[schedule]
warmup_steps = 10
[train]
epochs = 2.2
eval_every = 10
save_every = 7
[run]
threads = 1
TOML

# Becomes the trainer: call it as (train ...), or as train ... & for the process to kill.
train() {
  exec "$strata" train "$work/train.toml" --run.directory="$1" --model.precision="$2" > "$1.out" 2>> "$1.log"
}

declare -A expected duration
for precision in f32 bf16; do
  start=$(milliseconds)
  (train "$work/whole-$precision" $precision)
  duration[$precision]=$(($(milliseconds) - start))
  expected[$precision]=$(fingerprint "$work/whole-$precision")
  echo "$precision: ${duration[$precision]} ms, $(tail -n +2 "$work/whole-$precision/metrics.csv" | wc -l) steps"
done

equal=0
seed=$first_seed
for ((trial = 1; trial <= trials; ++trial)); do
  precision=$([ $((trial % 2)) = 0 ] && echo bf16 || echo f32)
  run=$work/run-$trial
  while :; do  # until the run is still there when its moment comes
    RANDOM=$((seed % 32768))
    moment=$(((RANDOM * 32768 + RANDOM) % duration[$precision]))
    rm -rf "$run"
    train "$run" $precision &
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    if kill -KILL $! 2> /dev/null; then killed=yes; else killed=no; fi
    { wait $! || true; } 2> /dev/null
    [ $killed = yes ] && break
    seed=$((seed + 1))
  done
  rows=$(tail -n +2 "$run/metrics.csv" 2> /dev/null | wc -l)
  verdict=different
  if (train "$run" $precision) && [ "$(fingerprint "$run")" = "${expected[$precision]}" ]; then
    verdict=equal
    equal=$((equal + 1))
  fi
  echo "trial $trial: $precision, seed $seed, killed after $moment ms with $rows steps logged: $verdict"
  seed=$((seed + 1))
  rm -rf "$run"
done

verdict=$([ $equal = $trials ] && echo ok || echo short)
echo "proof kill_and_resume $equal/$trials $trials/$trials $verdict"
[ $verdict = ok ]
