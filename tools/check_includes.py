#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that #include lines keep the modules apart. Prints file:line of every violation and exits 1 if there is one.

Usage: check_includes.py [ROOT]. The tables below are the rules; a module is a folder of strata/.
"""
import pathlib
import re
import sys

# module -> modules it may include besides itself.
MODULES = {
    "base": "",
    "tensor": "base",
    "spec": "base tensor",
    "layers": "base tensor spec",
    "program": "base tensor spec layers",
    "search": "base tensor spec layers program",
    "device": "base tensor",
    "kernels": "base tensor spec device",
    "comm": "base tensor device",
    "store": "base tensor spec device",
    "model": "base tensor spec layers device kernels",
    "optim": "base tensor spec layers device kernels",
    "data": "base tensor spec",
    "hf": "base tensor spec layers",
    "exec": "base tensor spec layers program search device kernels comm store model optim",
    "ckpt": "base tensor spec layers program search device kernels comm store model optim data hf exec",
    "train": "base tensor spec layers program search device kernels comm store model optim data hf exec ckpt",
}

# Headers of a backend: beginning of the included name -> the only folder that may include it.
BACKEND_HEADERS = {
    "dnnl": "strata/kernels/cpu/",
    "oneapi/": "strata/kernels/cpu/",
    "mpi": "strata/comm/mpi/",
}

# Folders whose headers only their own module, tests and benchmarks may include.
PRIVATE_FOLDERS = ("strata/kernels/cpu/", "strata/kernels/ref/")

SOURCES = ("strata", "apps", "tests", "bench", "examples")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def module_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "strata" else None


def is_test(path):
    return path.endswith("_test.cc") or path.startswith(("tests/", "bench/"))


def project_violation(path, included):
    """Why `path` may not include the project header `included`, or None."""
    own, other = module_of(path), module_of(included)
    private = next((folder for folder in PRIVATE_FOLDERS if included.startswith(folder)), None)
    if private and own != module_of(private) and not is_test(path):
        return f"{private} is private to strata/{module_of(private)} and tests"
    if own is None or other == own:
        return None
    if own not in MODULES:
        return f"module {own} is not in the table of tools/check_includes.py"
    if other not in MODULES[own].split():
        return f"module {own} may include only {MODULES[own] or 'itself'}, not {other}"
    return None


def violation(path, bracket, included):
    """Why `path` may not include `included`, or None."""
    for beginning, folder in BACKEND_HEADERS.items():
        if included.startswith(beginning) and not path.startswith(folder):
            return f"{included} may be included only under {folder}"
    if included.startswith("strata/"):
        return project_violation(path, included)
    if bracket == '"' and path.startswith("strata/"):
        return f'write the whole path: #include "strata/.../{included.split("/")[-1]}"'
    return None


def check(root):
    """All violations below `root`, as lines file:line: #include name: reason."""
    found = []
    files = [file for folder in SOURCES for file in (root / folder).rglob("*") if file.suffix in (".h", ".cc")]
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            reason = violation(path, *match.groups()) if match else None
            if reason:
                found.append(f"{path}:{number}: {line.strip()}: {reason}")
    return found, len(files)


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found, num_files = check(root)
    if not num_files:
        sys.exit(f"check_includes: no sources under {root}")
    print("\n".join(found + [f"check_includes: {num_files} files, {len(found)} violations"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
