#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs every test with the sanitizers, one preset after the other, and then prints a line for each: tests,
# failures, sanitizer reports and seconds. Goes on after a failure and then fails.
# Usage: scripts/sanitize.sh [PRESET...]; both asan and tsan without one
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- asan tsan
for preset in "$@"; do
  if [ "$preset" != asan ] && [ "$preset" != tsan ]; then
    echo "sanitize: no preset '$preset'; presets: asan tsan" >&2
    exit 2
  fi
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=()
failed=0
for preset in "$@"; do
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; }; then
    summary+=("$preset: does not build")
    failed=1
    continue
  fi
  started=$SECONDS
  ctest --preset "$preset" 2>&1 | tee "$log" || failed=1
  tests=$(sed -En 's/.* tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/\2 tests, \1 failed/p' "$log")
  reports=$(grep -cE '^SUMMARY: [A-Za-z]+Sanitizer|: runtime error: ' "$log" || true)
  summary+=("$preset: ${tests:-no tests}, $reports reports, $((SECONDS - started)) s")
done
printf '%s\n' "${summary[@]}"
exit $failed
