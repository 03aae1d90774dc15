#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: an English corpus from Debian's dict-gcide, a small GPT on its bytes for about two minutes, a sample of its text.
# Usage: examples/demo.sh [RUN_FOLDER]   (after `make build`; `make demo` does everything)
set -euo pipefail
cd "$(dirname "$0")/.."

run=${1:-runs/demo}
strata=build/strata
mkdir -p "$run"
corpus=$run/gcide.txt
if [ ! -s "$corpus" ]; then
  # Definitions as plain text: valid UTF-8, no marks of sources, no indentation, no blank lines.
  dictzip -dc /usr/share/dictd/gcide.dict.dz | iconv -c -f UTF-8 -t UTF-8 |
    sed -E 's/^ +//; /^\[(1913 Webster|PJC|WordNet [0-9.]+|.*Webster.*)\] *$/d; /^$/d' > "$corpus.part"
  mv "$corpus.part" "$corpus"
fi
cp examples/demo/config.json "$run/config.json"
sed -e "s|@RUN@|$run|g" examples/demo/config.toml > "$run/demo.toml"

"$strata" train "$run/demo.toml"
echo
echo "Three samples (strata generate --model $run/model --prompt \"...\"), up to the model's 128 positions:"
for seed in 1 2 3; do
  "$strata" generate --model "$run/model" --prompt $'Train \\Train\\, n. ' --max-tokens 110 --temperature 0.6 --seed "$seed"
  echo
done
echo
echo "model       $run/model"
echo "loss curve  $run/loss.svg"
echo "log         $run/metrics.csv, $run/tensorboard"
