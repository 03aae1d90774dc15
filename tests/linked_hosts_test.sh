#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/linked_hosts.sh: ranks on hosts of their own, links of the given rate, refusals, and nothing left behind.
# Skipped (77) where namespaces are not permitted.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
hosts="$root/scripts/linked_hosts.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

expect() {  # expect WHAT: the last command's status and output are $status and $output
  if ! eval "$1"; then
    echo "not true: $1 (status $status): $output" >&2
    failures=1
  fi
}
run() {
  status=0
  output=$(timeout -k 5 60 "$@" 2>/dev/null) || status=$?
}

for words in "" "2 1gbit" "1 1gbit true" "two 1gbit true" "201 1gbit true"; do
  status=0
  output=$("$hosts" $words 2>&1) || status=$?
  expect '[ $status = 2 ] && [[ "$output" == usage:* ]]'
done

printf '#!/bin/sh\necho no right; exit 1\n' >"$work/unshare"
chmod +x "$work/unshare"
status=0
output=$(PATH="$work:$PATH" "$hosts" 2 none true 2>&1) || status=$?
expect '[ $status = 77 ] && [[ "$output" == *"permits no network namespaces (no right)"*"run as root"* ]]'

run "$hosts" 2 none true
[ "$status" != 77 ] || exit 77
expect '[ $status = 0 ]'
run "$hosts" 2 none sh -c 'exit 5'
expect '[ $status = 5 ]'
run "$hosts" 2 12parsecs true
expect '[ $status != 0 ] && [ $status != 77 ]'

run "$hosts" 3 none mpirun -n 3 hostname
expect '[ $status = 0 ] && [ "$(sort <<<"$output")" = "$(printf "h1\nh2\nh3")" ]'
stream="$root/bench/tcp_stream.py"
run "$hosts" 2 200mbit mpirun -n 2 python3 "$stream" 4
expect '[ $status = 0 ] && awk "{ exit !(\$2 > 1e8 && \$2 < 2.1e8) }" <<<"$output"'

run ip link show hub
expect '[ $status != 0 ]'
exit $failures
