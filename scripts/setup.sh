#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a group of docs/dependencies.md names and that are missing. Does nothing, and needs
# no rights, when all are there. Usage: scripts/setup.sh GROUP
set -euo pipefail
cd "$(dirname "$0")/.."

group=${1:?usage: scripts/setup.sh GROUP (a value of the column "group" in docs/dependencies.md)}
packages=$(awk -F'|' -v group="$group" '
  { gsub(/^[ `]+|[ `]+$/, "", $2); gsub(/^ +| +$/, "", $3) }
  $3 == group { print $2 }' docs/dependencies.md)
if [ -z "$packages" ]; then
  echo "setup: docs/dependencies.md has no package in group '$group'" >&2
  exit 2
fi

missing=()
for package in $packages; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: missing packages: ${missing[*]}. Install them as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
