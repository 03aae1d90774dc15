#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One of four ranks killed at any moment ends them all, and the run goes on afterwards. 10 trials: each starts a fresh
# run of cp 2 x pp 2 with frozen tensors, kills (SIGKILL) a random rank, or mpirun in every fifth trial, at a random
# moment, and checks that all processes are gone within 10 s with an exit code that is not 0. Then the run is resumed,
# by turns with the same layout (weights, moments and log must be bit-equal to those of a run that nobody killed) and
# with another one (every logged loss within 1e-3). About two minutes. Usage: proofs/kill_ranks.sh [SEED]   (after `make build`; STRATA names
# another binary)
set -euo pipefail
source "$(dirname "$0")/tiny_run.bash"

strata=${STRATA:-$(dirname "$0")/../build/strata}
first_seed=${1:-$RANDOM}
trials=${TRIALS:-10}
layouts=("4 --parallel.zero=3" "4 --parallel.tp=2 --parallel.cp=2 --parallel.context=heads" "1" "2 --parallel.pp=2"
  "4 --parallel.cp=4")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

write_tiny_run "$work" 32 32 2
cat > "$work/train.toml" <<TOML
[model]
config = "$work/config.json"
frozen = ["mlp.0.*"]
[data]
train = ["$work/train.txt"]
[batch]
global = 8
[train]
max_steps = 120
save_every = 7
[run]
threads = 1
TOML

# train RUN RANKS OPTIONS...; as train ... & for the processes to kill.
train() {
  local run=$1 ranks=$2
  shift 2
  exec "$strata" train "$work/train.toml" --run.directory="$run" --ranks "$ranks" "$@" > "$run.out" 2>> "$run.log"
}
same=(4 --parallel.cp=2 --parallel.pp=2 --parallel.zero=1)

losses() { cut -d, -f1,3 "$1/metrics.csv"; }
close_losses() {
  paste -d, <(losses "$1") <(losses "$2") | awk -F, '
    NR == 1 { next }
    { ++n; if ($1 != $3 || ($2 - $4) ^ 2 > (1e-3 * $4) ^ 2) bad = 1 }
    END { exit bad || n != 120 }'
}

start=$(milliseconds)
(train "$work/whole" "${same[@]}")
duration=$(($(milliseconds) - start))
expected=$(fingerprint "$work/whole")
echo "uninterrupted: $duration ms"

good=0
seed=$first_seed
for ((trial = 1; trial <= trials; ++trial)); do
  run=$work/run-$trial
  while :; do  # until all ranks are there when their moment comes
    RANDOM=$((seed % 32768))
    moment=$(((RANDOM * 32768 + RANDOM) % duration))
    rm -rf "$run"
    train "$run" "${same[@]}" &
    parent=$!
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    launcher=$(pgrep -x mpirun -P $parent || true)
    mapfile -t ranks < <([ -z "$launcher" ] || pgrep -P "$launcher" || true)
    victim=$launcher what=mpirun
    if [ $((trial % 5)) != 0 ] && [ ${#ranks[@]} = 4 ]; then
      number=$((RANDOM % 4))
      victim=${ranks[$number]} what="rank $number"
    fi
    if [ ${#ranks[@]} = 4 ] && kill -KILL "$victim" 2> /dev/null; then break; fi
    wait $parent 2> /dev/null || true
    seed=$((seed + 1))
  done
  killed=$(milliseconds)
  code=0
  wait $parent 2> /dev/null || code=$?
  while pgrep -f "$run " > /dev/null && [ $(($(milliseconds) - killed)) -lt 20000 ]; do sleep 0.05; done
  gone=$(($(milliseconds) - killed))
  rows=$({ tail -n +2 "$run/metrics.csv" 2> /dev/null || true; } | wc -l)

  verdict=different
  if [ $((trial % 2)) = 1 ]; then
    how="the same layout"
    (train "$run" "${same[@]}") && [ "$(fingerprint "$run")" = "$expected" ] && verdict=equal
  else
    how="ranks ${layouts[$((trial / 2 - 1))]}"
    read -ra options <<< "${layouts[$((trial / 2 - 1))]}"
    (train "$run" "${options[@]}") && close_losses "$run" "$work/whole" && verdict=close
  fi
  if [ $code != 0 ] && [ $gone -lt 10000 ] && [ $verdict != different ]; then good=$((good + 1)); fi
  echo "trial $trial: seed $seed, $what killed after $moment ms with $rows steps logged, code $code," \
    "all gone after $gone ms; resumed with $how: $verdict"
  seed=$((seed + 1))
  rm -rf "$run"
done

verdict=$([ $good = $trials ] && echo ok || echo short)
echo "proof kill_ranks $good/$trials $trials/$trials $verdict"
[ $verdict = ok ]
