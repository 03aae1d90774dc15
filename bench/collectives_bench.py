# SPDX-License-Identifier: Apache-2.0
"""Collectives of 1 to 512 MiB between two MPI ranks of this machine against plain loops over the same bytes.

Runs bench/collectives.cc, whose rounds time both in turns. A ratio is made inside a round and its median over the
rounds counts; the worst size of a kind is compared with the goal. Writes bench/results/collectives.md and prints one
line per goal: bench NAME MEASURED GOAL ok|short.
"""

import pathlib
import re
import statistics
import sys
import tempfile

import row
import train_report
from child_process import ChildFailed, run_child

GOAL = 1.3
KINDS = ("reduce-scatter", "all-gather", "all-reduce")
MIB = 2**20
LINE = re.compile(r"round (\d+) bytes (\d+) (\S+) (\S+) loops (\S+)")
# Open MPI: ranks are not bound to a core, may be more than there are cores, and may be root's.
ENVIRONMENT = {"OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def parse(output):
    """{(bytes, kind): [(seconds of the collective, seconds of the loops) of each round]}"""
    result = {}
    for match in filter(None, map(LINE.match, output.splitlines())):
        _, size, kind, collective, loops = match.groups()
        result.setdefault((int(size), kind), []).append((float(collective), float(loops)))
    return result


def ratio(rounds):
    return statistics.median(collective / loops for collective, loops in rounds)


def worst_ratio(measured, kind):
    ratios = [ratio(rounds) for (size, of), rounds in measured.items() if of == kind and size >= MIB]
    return max(ratios) if ratios else None


def goal_lines(measured):
    lines = []
    for kind in KINDS:
        worst = worst_ratio(measured, kind)
        verdict = "ok" if worst is not None and worst <= GOAL else "short"
        lines.append(f"bench collectives_{kind.replace('-', '_')} "
                     f"{'missing' if worst is None else f'{worst:.3f}'} {GOAL} {verdict}")
    return lines


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size} B"


def report(measured, run, command):
    lines = ["# Collectives between two ranks of one machine", "",
             f"Written by `bench/collectives_bench.py`; {train_report.machine()}.", f"Command: `{' '.join(command)}`.",
             f"Before the start {run.busy_before:.2f} of the cores were busy, during it others kept "
             f"{run.foreign_cpu:.2f} cores busy.", "",
             "Medians over the rounds, microseconds of the slower rank. The loops add, copy, or add and copy what a",
             "rank receives, from its own memory, on both ranks at the same time; all values are in arenas. The kernel",
             "copies large parts from the other process: to their place, or to a MiB from which they are added, which",
             "is a second pass, though over the cache. docs/communication.md tells what was tried.", "",
             "| size | kind | us | loops us | ratio |", "| --- | --- | --- | --- | --- |"]
    for (size, kind), rounds in measured.items():
        collective, loops = (statistics.median(column) * 1e6 for column in zip(*rounds))
        compared = f"{ratio(rounds):.2f}" if size >= MIB else ""
        lines.append(f"| {size_name(size)} | {kind} | {collective:.1f} | {loops:.1f} | {compared} |")
    return "\n".join([*lines, "", "```", *goal_lines(measured), *run.output.splitlines(), "```", ""])


def parse_arguments():
    parser = row.parser(__doc__)
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("--largest-mib", type=int, default=512)
    arguments = parser.parse_args()
    arguments.program = arguments.build / "bench" / "collectives"
    if arguments.rounds < 1 or arguments.largest_mib < 1:
        parser.error("--rounds and --largest-mib must be at least 1")
    row.require_program(parser, arguments.program)
    return arguments


def main():
    arguments = parse_arguments()
    command = [arguments.mpiexec, "-n", "2", arguments.program, arguments.rounds, arguments.largest_mib]
    try:
        with tempfile.TemporaryDirectory(prefix="strata_bench_") as folder:
            run = run_child([str(part) for part in command], pathlib.Path(folder) / "collectives.log", ENVIRONMENT)
    except ChildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    measured = parse(run.output)
    arguments.results.mkdir(parents=True, exist_ok=True)
    command = ["bench/collectives_bench.py", *sys.argv[1:]]
    (arguments.results / "collectives.md").write_text(report(measured, run, command))
    print("\n".join(goal_lines(measured)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
