# SPDX-License-Identifier: Apache-2.0
"""Throughput of two ranks of one thread with ZeRO 1 and ZeRO 3 against one rank of two threads, in turns.

The plan may overlap communication with computation or not: both are measured, and the faster one counts. Writes
bench/results/ranks.json (raw) and ranks.md, and prints one line per goal: bench NAME MEASURED GOAL ok|short.
"""

import pathlib
import statistics
import sys
import tempfile

import row
import train_report
from train_bench import run_strata
from workloads import WORKLOADS, write_inputs

# Share of the throughput of one rank that two ranks keep.
GOALS = {"gpt14m": {1: 0.97, 3: 0.93}, "gpt124m": {1: 0.92, 3: 0.85}}
ZERO_STAGES = (1, 3)


def options(workload, zero, overlap):
    return ["--ranks=2", "--run.threads=1", f"--batch.micro={workload.batch // 2}", f"--parallel.zero={zero}",
            f"--parallel.overlap={str(overlap).lower()}"]


def kinds(workload):
    """name: overrides of every kind of run."""
    return {"one": (), **{name_of(zero, overlap): options(workload, zero, overlap)
                          for zero in ZERO_STAGES for overlap in (True, False)}}


def name_of(zero, overlap):
    return f"zero{zero}{'' if overlap else '_in_turn'}"


def measure_workload(workload, arguments):
    rounds = []
    with tempfile.TemporaryDirectory(prefix="strata_bench_") as name:
        folder = pathlib.Path(name)
        write_inputs(workload, folder)
        for number in range(arguments.rounds):
            print(f"{workload.name}: round {number + 1} of {arguments.rounds}", flush=True)
            rounds.append({kind: run_strata(workload, folder, arguments, overrides)
                           for kind, overrides in kinds(workload).items()})
    return rounds


def kept(rounds, kind):
    """Throughput of a kind over that of one rank: the median over rounds."""
    return statistics.median(round_["one"]["median"] / round_[kind]["median"] for round_ in rounds)


def goal_lines(measured):
    lines = []
    for workload, rounds in measured["workloads"].items():
        for zero, goal in GOALS[workload].items():
            value = max(kept(rounds, name_of(zero, overlap)) for overlap in (True, False))
            lines.append(f"bench ranks_{workload}_zero{zero} {value:.3f} {goal} {'ok' if value >= goal else 'short'}")
    return lines


def report(measured):
    lines = ["# Two ranks of one thread against one rank of two threads", "",
             f"Written by `bench/ranks_bench.py`; {measured['machine']}. Command: `{' '.join(measured['command'])}`.",
             "The batch is split over the two ranks. `in_turn`: communication between, not beside, the computation.", "",
             "| workload | run | s/step | throughput of one rank kept |", "| --- | --- | --- | --- |"]
    for workload, rounds in measured["workloads"].items():
        for kind in rounds[0]:
            seconds = statistics.median(round_[kind]["median"] for round_ in rounds)
            lines.append(f"| {workload} | {kind} | {seconds:.3f} | {kept(rounds, kind):.3f} |")
    lines += ["", "```", *goal_lines(measured)]
    for workload, rounds in measured["workloads"].items():
        lines += row.raw_lines(rounds, f"{workload} ")
    return "\n".join([*lines, "```", ""])


def parse_arguments():
    parser = row.parser(__doc__)
    parser.add_argument("--workloads", nargs="+", choices=GOALS, default=list(GOALS))
    arguments = parser.parse_args()
    arguments.strata = arguments.build / "strata"
    arguments.threads = 2
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    row.require_program(parser, arguments.strata)
    return arguments


def measure(arguments):
    return {"workloads": {name: measure_workload(WORKLOADS[name], arguments) for name in arguments.workloads},
            "machine": train_report.machine(), "command": ["bench/ranks_bench.py", *sys.argv[1:]]}


if __name__ == "__main__":
    sys.exit(row.run(parse_arguments(), "ranks", measure, report, goal_lines))
