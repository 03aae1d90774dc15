#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment of the benchmarks and of the tests against PyTorch outside the repository, and prints
# where it is. Does nothing when it is complete. An existing environment that STRATA_VENV names is used as it is, with
# whatever versions it has; it is never changed.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=scripts/python_requirements.txt
venv=${STRATA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/strata/venv}
made="$venv/strata_requirements.txt"  # what this script has installed there

# Names of required packages that the environment lacks.
missing() {
  "$venv/bin/python" - "$requirements" <<'PYTHON'
import importlib.metadata
import sys

for line in open(sys.argv[1]):
    name = line.split("==")[0].strip()
    if name and not name.startswith("#"):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(name)
PYTHON
}

if [ -n "${STRATA_VENV:-}" ] && [ -x "$venv/bin/python" ] && [ ! -f "$made" ]; then
  lacking=$(missing | tr '\n' ' ')
  if [ -n "$lacking" ]; then
    echo "STRATA_VENV=$venv lacks: $lacking; install them there, or unset STRATA_VENV to have one made" >&2
    exit 1
  fi
elif ! cmp -s "$requirements" "$made"; then
  if ! python3 -m venv "$venv"; then
    echo "cannot make $venv: install python3-venv (Debian), or let STRATA_VENV name an existing environment" >&2
    exit 1
  fi
  "$venv/bin/python" -m pip install --quiet --requirement "$requirements" >&2
  cp "$requirements" "$made"
fi
echo "$venv"
