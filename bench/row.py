# SPDX-License-Identifier: Apache-2.0
"""What the rows of the benchmark share: options, raw lines of trained rounds, where results go, and how a row ends."""

import argparse
import json
import pathlib
import sys

from child_process import ChildFailed

BENCH = pathlib.Path(__file__).resolve().parent


def parser(description):
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build", help="build folder of Strata")
    result.add_argument("--results", type=pathlib.Path, default=BENCH / "results")
    result.add_argument("--rounds", type=int, default=5)
    return result


def require_program(parser_, program):
    if not program.exists():
        parser_.error(f"no {program}: build Strata first, or give --build")


def raw_lines(rounds, prefix=""):
    """A line per run of rounds {name: run_strata's result}."""
    lines = []
    for number, round_ in enumerate(rounds, 1):
        for name, run in round_.items():
            steps = " ".join(f"{seconds:.3f}" for seconds in run["step_seconds"])
            lines.append(f"{prefix}round {number}: {name:9} steps {steps} | loss {run['loss']:.4f} "
                         f"| busy before {run['busy_before']:.2f}, foreign {run['foreign_cpu']:.2f} cores")
    return lines


def write(results, name, measured, text):
    """NAME.json (raw) and NAME.md."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n")
    (results / f"{name}.md").write_text(text)


def run(arguments, name, measure, report, goal_lines):
    """Measures, writes what report() makes of it and prints the goals; the exit code. A child that fails is told."""
    try:
        measured = measure(arguments)
    except ChildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    write(arguments.results, name, measured, report(measured))
    print("\n".join(goal_lines(measured)), flush=True)
    return 0
