#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/setup.sh, run_rows.sh and sanitize.sh, with stand-ins for the programs that they call.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/tools" "$work/rows"
failures=0

expect() {  # expect WHAT: the last command's status and output are $status and $output
  if ! eval "$1"; then
    echo "not true: $1 (status $status): $output" >&2
    failures=1
  fi
}
run() {
  status=0
  output=$("$@" 2>&1) || status=$?
}
stand_in() {  # stand_in NAME BODY
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
for tool in awk bash cat dirname env sh; do ln -s "$(command -v $tool)" "$work/tools/$tool"; done
setup() { run env PATH="$work/bin:$work/tools" "$root/scripts/setup.sh" "$@"; }

stand_in apt-get 'echo "apt-get $*"'
stand_in id 'echo 0'
stand_in dpkg-query 'echo installed'
setup build
expect '[ $status = 0 ] && [ -z "$output" ]'

stand_in dpkg-query 'case "$*" in *dictzip*) exit 1;; *) echo installed;; esac'
setup demo
expect '[ $status = 0 ] && [[ "$output" == *"apt-get install"*" dictzip" ]] && [[ "$output" != *gcide* ]]'

stand_in id 'echo 1000'
setup demo
expect '[ $status = 1 ] && [[ "$output" == *"as root: apt-get install dictzip"* ]]'

stand_in sudo 'echo "sudo $*"'
setup demo
expect '[ $status = 0 ] && [[ "$output" == *"sudo env"*"apt-get install"*dictzip* ]]'

setup nothing
expect '[ $status = 2 ] && [[ "$output" == *"no package in group"* ]]'

echo 'echo one' >"$work/rows/one.sh"
echo 'exit 1' >"$work/rows/two.sh"
run "$root/scripts/run_rows.sh" "$work/rows" one
expect '[ $status = 0 ] && [ "$output" = "$(printf "== one\none")" ]'
run "$root/scripts/run_rows.sh" "$work/rows"
expect '[ $status = 1 ] && [[ "$output" == *"two.sh failed"* ]]'
echo 'echo bench speed 1.2 1.1 ok; echo raw' >"$work/rows/first.sh"
run "$root/scripts/run_rows.sh" "$work/rows"
expect '[ $status = 1 ] && [[ "$output" == *"== goals
bench speed 1.2 1.1 ok" ]]'
rm "$work/rows/first.sh"
run "$root/scripts/run_rows.sh" "$work/rows" three
expect '[ $status = 2 ] && [[ "$output" == *"rows: one two"* ]]'

sanitize() { run env PATH="$work/bin:$PATH" "$root/scripts/sanitize.sh" "$@"; }
stand_in cmake 'exit 0'
stand_in ctest 'echo "100% tests passed, 0 tests failed out of 7"'
sanitize
expect '[ $status = 0 ] && [[ "$output" == *"asan: 7 tests, 0 failed, 0 reports, "*"tsan: 7 tests, 0 failed, 0 reports, "* ]]'
stand_in ctest 'echo "86% tests passed, 1 tests failed out of 7"; echo "SUMMARY: ThreadSanitizer: data race"; exit 8'
sanitize tsan
expect '[ $status = 1 ] && [[ "$output" == *"tsan: 7 tests, 1 failed, 1 reports, "* ]]'
stand_in cmake 'case "$*" in *asan*) exit 1;; esac'
stand_in ctest 'echo "100% tests passed, 0 tests failed out of 7"'
sanitize
expect '[ $status = 1 ] && [[ "$output" == *"asan: does not build"*"tsan: 7 tests"* ]]'
sanitize msan
expect '[ $status = 2 ] && [[ "$output" == *"presets: asan tsan"* ]]'
exit $failures
