# SPDX-License-Identifier: Apache-2.0
"""Communication over slow links: two hosts as namespaces of this machine (scripts/linked_hosts.sh), one rank on each.

Collectives: time of 1 to 64 MiB over bytes that a rank sends / rate of the link; the worst size of a kind counts.
Training with ZeRO 1 and 3: links are given rates at which a step's communication (bytes that a rank sends / rate) takes
0.3, 0.6 and 1.0 of its computation (what a rank does between its communication, on links without a limit); counted is
the time of a step with overlap over the longer of the two. Writes bench/results/links.json (raw) and links.md, and
prints one line per goal: bench NAME MEASURED GOAL ok|short.
"""

import csv
import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import sys
import tempfile

import collectives_bench
import row
import train_report
from child_process import run_child
from train_bench import WARM_UP_STEPS, config_toml, step_seconds, summarize
from workloads import WORKLOADS, write_inputs

HOSTS = row.BENCH.parent / "scripts" / "linked_hosts.sh"
GOALS = {"collectives": 1.3, "step": 1.15}
LARGEST_MIB = 64
STREAM_MIB = 64
WORKLOAD = dataclasses.replace(WORKLOADS["gpt14m"], steps=5)
ZERO_STAGES = (1, 3)
SHARES = (0.3, 0.6, 1.0)
COLLECTIVE = re.compile(r"data +(all-reduce|all-gather|reduce-scatter) (\d+) elements over data\b")
STEP_BEGIN = "scalar reset"
COMMUNICATION = ("collective", "send", "recv")  # categories of a trace


def on_hosts(rate_mbit, command):
    """`command` on two hosts whose links carry so much; None: no limit."""
    rate = "none" if rate_mbit is None else f"{rate_mbit}mbit"
    return [str(word) for word in [HOSTS, 2, rate, "mpirun", "-n", 2, *command]]


def sent_bytes(kind, size):
    """What each of two ranks sends in a collective over `size` bytes."""
    return size if kind == "all-reduce" else size // 2


# Collectives

def measure_collectives(rate_mbit, arguments, folder):
    """The plain stream of bit/s, and collectives_bench's rounds {(bytes, kind): [seconds]}."""
    stream = run_child(on_hosts(rate_mbit, [sys.executable, row.BENCH / "tcp_stream.py", STREAM_MIB]),
                       folder / "stream.log").output
    run = run_child(on_hosts(rate_mbit, [arguments.collectives, arguments.rounds, LARGEST_MIB]),
                    folder / "collectives.log")
    return {"rate_mbit": rate_mbit, "stream_bits": float(stream.split()[1]), "output": run.output,
            "busy_before": run.busy_before}


def collective_ratios(measured):
    """[(bytes, kind, seconds, seconds / (bytes that a rank sends / rate))], medians over rounds."""
    result = []
    for (size, kind), rounds in collectives_bench.parse(measured["output"]).items():
        if size < collectives_bench.MIB:
            continue
        seconds = statistics.median(collective for collective, _ in rounds)
        result.append((size, kind, seconds, seconds * measured["rate_mbit"] * 1e6 / 8 / sent_bytes(kind, size)))
    return result


# Training

def step_bytes(program):
    """What each of two ranks sends in a step, from the listing of the programs, in f32."""
    step = program.split("program step", 1)[1].split("\nprogram ", 1)[0]
    return sum(sent_bytes(kind, 4 * int(elements)) for kind, elements in COLLECTIVE.findall(step))


def compute_seconds(traces):
    """Between communication, per step, of the slower rank; for runs without overlap. The first steps do not count."""
    return max(statistics.median(computing_of_steps(events)[WARM_UP_STEPS["strata"]:]) for events in traces)


def computing_of_steps(events):
    """Seconds of each step of a rank's trace; a step begins with the reset of the scalars."""
    steps = []
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        if event["name"] == STEP_BEGIN:
            steps.append(0.0)
        if event["cat"] not in COMMUNICATION:
            steps[-1] += event["dur"] / 1e6
    return steps


def run_linked(rate_mbit, zero, overlap, arguments, folder, profile=False):
    config = folder / "config.toml"
    config.write_text(config_toml(WORKLOAD, folder, threads=1))
    shutil.rmtree(folder / "run", ignore_errors=True)
    options = [f"--batch.micro={WORKLOAD.batch // 2}", f"--parallel.zero={zero}",
               f"--parallel.overlap={str(overlap).lower()}", *(["--profile"] if profile else [])]
    run = run_child(on_hosts(rate_mbit, [arguments.strata, "train", config, *options]), folder / "strata.log")
    with open(folder / "run" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    result = summarize(run, "strata", [step_seconds(row_) for row_ in rows], float(rows[-1]["loss"]))
    if profile:
        traces = [json.loads(path.read_text()) for path in sorted((folder / "run").glob("trace*.json"))]
        result["compute_seconds"] = compute_seconds(traces)
        result["step_bytes"] = step_bytes((folder / "run" / "program.txt").read_text())
    shutil.rmtree(folder / "run")
    return result


def name_of(share, overlap):
    return f"{share}{'' if overlap else '_in_turn'}"


def measure_training(zero, arguments, folder):
    """A round: the computation, then every share on links of the rate that it makes."""
    free = run_linked(None, zero, False, arguments, folder, profile=True)
    runs = {"free": free, "free_overlap": run_linked(None, zero, True, arguments, folder)}
    for share in SHARES:
        rate_mbit = round(free["step_bytes"] * 8 / 1e6 / (share * free["compute_seconds"]))
        for overlap in (True, False):
            run = run_linked(rate_mbit, zero, overlap, arguments, folder)
            runs[name_of(share, overlap)] = {**run, "rate_mbit": rate_mbit}
    return runs


def step_ratio(round_, name):
    """Seconds of a step over the longer of computation and communication."""
    free, run = round_["free"], round_[name]
    communication = free["step_bytes"] * 8 / 1e6 / run["rate_mbit"]
    return run["median"] / max(free["compute_seconds"], communication)


def median_ratio(rounds, name):
    return statistics.median(step_ratio(round_, name) for round_ in rounds)


# Report

def goal_line(name, value, goal):
    return f"bench links_{name} {value:.3f} {goal} {'ok' if value <= goal else 'short'}"


def goal_lines(measured):
    lines = []
    for collectives in measured["collectives"]:
        ratios = collective_ratios(collectives)
        for kind in collectives_bench.KINDS:
            worst = max(ratio for _, of, _, ratio in ratios if of == kind)
            lines.append(goal_line(f"{collectives['rate_mbit']}mbit_{kind.replace('-', '_')}", worst,
                                   GOALS["collectives"]))
    for zero, rounds in measured["training"].items():
        lines += [goal_line(f"zero{zero}_{share}", median_ratio(rounds, name_of(share, True)), GOALS["step"])
                  for share in SHARES]
    return lines


def collectives_table(measured):
    lines = []
    for collectives in measured["collectives"]:
        rate = collectives["rate_mbit"]
        lines += [f"Links of {rate} Mbit/s; a plain TCP stream carries {collectives['stream_bits'] / 1e6:.0f} Mbit/s "
                  f"each way while both sides send ({collectives['stream_bits'] / rate / 1e6:.3f} of the rate).", "",
                  "| size | kind | ms | of bytes / rate |", "| --- | --- | --- | --- |"]
        lines += [f"| {collectives_bench.size_name(size)} | {kind} | {seconds * 1e3:.2f} | {ratio:.3f} |"
                  for size, kind, seconds, ratio in collective_ratios(collectives)]
        lines.append("")
    return lines


def training_table(measured):
    lines = ["| ZeRO | communication / computation | Mbit/s | computation s | communication s | step s | ratio "
             "| step s in turn | ratio |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for zero, rounds in measured["training"].items():
        for share in SHARES:
            overlapped, in_turn = name_of(share, True), name_of(share, False)
            middle = [statistics.median(values) for values in zip(*(
                (round_[overlapped]["rate_mbit"], round_["free"]["compute_seconds"],
                 round_["free"]["step_bytes"] * 8 / 1e6 / round_[overlapped]["rate_mbit"],
                 round_[overlapped]["median"], round_[in_turn]["median"]) for round_ in rounds))]
            rate, compute, communication, step, step_in_turn = middle
            lines.append(f"| {zero} | {share} | {rate:.0f} | {compute:.3f} | {communication:.3f} | {step:.3f} "
                         f"| {median_ratio(rounds, overlapped):.3f} | {step_in_turn:.3f} "
                         f"| {median_ratio(rounds, in_turn):.3f} |")
        free = [statistics.median(round_[name]["median"] for round_ in rounds) for name in ("free_overlap", "free")]
        lines.append(f"| {zero} | no limit | | {compute:.3f} | | {free[0]:.3f} | | {free[1]:.3f} | |")
    return lines


def raw_lines(rounds, prefix):
    """As row.raw_lines, without what others did meanwhile: ranks are no descendants of what was started here."""
    return [line.rsplit(", foreign", 1)[0] for line in row.raw_lines(rounds, prefix)]


def report(measured):
    lines = ["# Communication over slow links", "",
             f"Written by `bench/links_bench.py`; {measured['machine']}. Command: `{' '.join(measured['command'])}`.",
             "Two hosts as network namespaces of this machine, whose cores they share, one rank of one thread on each;",
             "links shaped by tc's tbf in both directions, messages by TCP (`scripts/linked_hosts.sh`).", "",
             "## Collectives", "", *collectives_table(measured), "## Steps of gpt14m", "",
             "Computation: what the slower rank does between its communication, without overlap and without a limit of",
             "the link. Communication: bytes that a rank sends in a step (program listing) / rate. A ratio is seconds of",
             "a step over the longer of the two, made inside a round; `in turn`: without overlap. Protocol and copies of",
             "both hosts run on the cores that compute: with overlap that is in the steps, but not in either of the two.",
             "",
             *training_table(measured), "", "```", *goal_lines(measured)]
    for collectives in measured["collectives"]:
        lines += [f"{collectives['rate_mbit']}mbit {line}" for line in collectives["output"].splitlines()]
    for zero, rounds in measured["training"].items():
        lines += raw_lines(rounds, f"zero{zero} ")
    return "\n".join([*lines, "```", ""])


def parse_arguments():
    parser = row.parser(__doc__)
    parser.add_argument("--rates", nargs="+", type=int, default=[1000], metavar="MBIT", help="links of the collectives")
    arguments = parser.parse_args()
    arguments.strata = arguments.build / "strata"
    arguments.collectives = arguments.build / "bench" / "collectives"
    if arguments.rounds < 1 or min(arguments.rates) < 1:
        parser.error("--rounds and --rates must be at least 1")
    for program in (arguments.strata, arguments.collectives):
        row.require_program(parser, program)
    return arguments


def measure(arguments):
    with tempfile.TemporaryDirectory(prefix="strata_bench_") as name:
        folder = pathlib.Path(name)
        collectives = [measure_collectives(rate, arguments, folder) for rate in arguments.rates]
        write_inputs(WORKLOAD, folder)
        training = {zero: [] for zero in ZERO_STAGES}
        for number in range(arguments.rounds):
            print(f"{WORKLOAD.name}: round {number + 1} of {arguments.rounds}", flush=True)
            for zero in ZERO_STAGES:
                training[zero].append(measure_training(zero, arguments, folder))
    return {"collectives": collectives, "training": training, "machine": train_report.machine(),
            "command": ["bench/links_bench.py", *sys.argv[1:]]}


if __name__ == "__main__":
    sys.exit(row.run(parse_arguments(), "links", measure, report, goal_lines))
