# SPDX-License-Identifier: Apache-2.0
"""Training step time and planned memory of gpt14m with bf16 storage against f32, in turns.

bf16 products run natively where the CPU multiplies bf16, and otherwise convert blocks to f32. The converting path is
measured on every machine: where the CPU is native, a limit on the instruction set that oneDNN uses (its variable
ONEDNN_MAX_CPU_ISA) stands for a CPU that is not. Writes bench/results/bf16.json (raw) and bf16.md, and prints one line
per goal: bench NAME MEASURED GOAL ok|short.
"""

import pathlib
import statistics
import sys
import tempfile

import row
import train_report
from child_process import run_child
from train_bench import run_strata
from workloads import WORKLOADS, write_inputs

WORKLOAD = WORKLOADS["gpt14m"]
BF16 = ["--model.precision=bf16"]
NO_NATIVE_BF16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}
# Weights and activations are half as large but for what stays f32: two statistics a token and norm, one of attention a
# token and head: (2 * 13 + 6 * 6) * 4 of the 150 KiB that a token of gpt14m keeps, 0.2 %.
GOALS = {"converted_time": 1.1, "memory": 0.51}


def has_native_bf16(cpuinfo):
    return any("avx512_bf16" in line.split() for line in cpuinfo.splitlines() if line.startswith("flags"))


def paths(native):
    """name: (overrides, environment) of every kind of run."""
    result = {"f32": ((), None), "converted": (BF16, NO_NATIVE_BF16)}
    return {**result, "native": (BF16, None)} if native else result


def ledger_bytes(report, program="step"):
    """kind: bytes at the fullest moment of device memory, from what `strata check` prints for a program."""
    lines = iter(report.splitlines())
    for line in lines:
        if line == program:
            break
    result = {}
    next(lines)
    for line in lines:
        if not line.startswith("  "):
            break
        kind, size = line.split()[:2]
        result[kind] = int(size)
    return result


def planned_bytes(folder, arguments, overrides):
    run = run_child([arguments.strata, "check", folder / "config.toml", *overrides], folder / "check.log")
    return ledger_bytes(run.output)


def measure(arguments):
    """The whole measurement as plain data."""
    native = has_native_bf16(pathlib.Path("/proc/cpuinfo").read_text())
    rounds = []
    with tempfile.TemporaryDirectory(prefix="strata_bench_") as name:
        folder = pathlib.Path(name)
        write_inputs(WORKLOAD, folder)
        for number in range(arguments.rounds):
            print(f"bf16: round {number + 1} of {arguments.rounds}", flush=True)
            rounds.append({path: run_strata(WORKLOAD, folder, arguments, *options)
                           for path, options in paths(native).items()})
        ledgers = {precision: planned_bytes(folder, arguments, overrides)
                   for precision, overrides in (("f32", ()), ("bf16", BF16))}
    return {"workload": WORKLOAD.name, "threads": arguments.threads, "native": native, "rounds": rounds,
            "ledgers": ledgers, "machine": train_report.machine(), "command": ["bench/bf16_bench.py", *sys.argv[1:]]}


def time_ratio(measured, path):
    return statistics.median(round_[path]["median"] / round_["f32"]["median"] for round_ in measured["rounds"])


def memory_ratio(measured):
    f32, bf16 = measured["ledgers"]["f32"], measured["ledgers"]["bf16"]
    return (bf16["parameters"] + bf16["activations"]) / (f32["parameters"] + f32["activations"])


def goal_lines(measured):
    values = {"converted_time": time_ratio(measured, "converted"), "memory": memory_ratio(measured)}
    return [f"bench bf16_{name} {value:.3f} {GOALS[name]} {'ok' if value <= GOALS[name] else 'short'}"
            for name, value in values.items()]


def report(measured):
    path = "multiplies bf16 natively" if measured["native"] else "has no native bf16: every run converts"
    lines = [f"# bf16 against f32: {measured['workload']}, {measured['threads']} threads", "",
             f"Written by `bench/bf16_bench.py`; {measured['machine']}, which {path}.",
             f"Command: `{' '.join(measured['command'])}`.", "",
             "| run | s/step | of f32 (median over rounds) | peak memory MiB |", "| --- | --- | --- | --- |"]
    for name in measured["rounds"][0]:
        runs = [round_[name] for round_ in measured["rounds"]]
        peak = max(run["peak_bytes"] for run in runs) / 2**20
        seconds = statistics.median(run["median"] for run in runs)
        lines.append(f"| {name} | {seconds:.3f} | {time_ratio(measured, name):.3f} | {peak:.0f} |")
    lines += ["", "Planned bytes at the fullest moment of a step:", "", "| kind | f32 | bf16 |", "| --- | --- | --- |"]
    f32, bf16 = measured["ledgers"]["f32"], measured["ledgers"]["bf16"]
    lines += [f"| {kind} | {size} | {bf16.get(kind, 0)} |" for kind, size in f32.items()]
    lines += ["", "```", *goal_lines(measured), *row.raw_lines(measured["rounds"]), "```", ""]
    return "\n".join(lines)


def parse_arguments():
    parser = row.parser(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    arguments.strata = arguments.build / "strata"
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    row.require_program(parser, arguments.strata)
    return arguments


if __name__ == "__main__":
    sys.exit(row.run(parse_arguments(), "bf16", measure, report, goal_lines))
