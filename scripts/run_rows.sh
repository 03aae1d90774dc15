#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every script FOLDER/*.sh in the order of their names, or FOLDER/ROW.sh only. Goes on after a failure and then
# fails. Ends with the lines "bench|proof NAME MEASURED GOAL ok|short" of all rows.
# Usage: scripts/run_rows.sh FOLDER [ROW]
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: scripts/run_rows.sh FOLDER [ROW]}
row=${2:-*}
failed=0
found=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for script in "$folder"/$row.sh; do
  [ -f "$script" ] || continue
  found=1
  echo "== $(basename "$script" .sh)"
  bash "$script" | tee -a "$output" || { echo "$script failed" >&2; failed=1; }
done
if [ "$found" = 0 ]; then
  rows=$(cd "$folder" 2>/dev/null && ls -- *.sh 2>/dev/null | sed 's/\.sh$//' | tr '\n' ' ' || true)
  echo "no row '$row' in $folder; rows: ${rows:-none}" >&2
  exit 2
fi
if grep -Eq '^(bench|proof) ' "$output"; then
  echo "== goals"
  grep -E '^(bench|proof) ' "$output"
fi
exit $failed
