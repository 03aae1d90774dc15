# SPDX-License-Identifier: Apache-2.0
"""What the raw lines of the training benchmark amount to: comparisons, goals, and bench/results/train.md.

A comparison is made inside each round, so that a slow minute of the machine hits both sides; its median counts.
"""

import json
import os
import pathlib
import statistics

# name: (unit of the goal, True when the goal is a lower limit)
GOALS = {
    "eager": ("PyTorch eager seconds / Strata seconds", True),
    "compile": ("PyTorch compiled seconds / Strata seconds", True),
    "fma_share": ("GFLOP/s of a step / FMA peak", True),
    "gemm_share": ("seconds of the bare products / Strata seconds", True),
    "memory": ("Strata peak bytes / PyTorch eager peak bytes", False),
}


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {total / 2**30:.0f} GiB, Linux {os.uname().release}"


def of_system(round_, system):
    return next(run for run in round_["runs"] if run["system"] == system)


def round_values(measured, round_):
    """The compared values of one round; None for what could not be measured."""
    strata, eager, compiled = (of_system(round_, system) for system in ("strata", "eager", "compile"))
    peak, products = round_["peak_gflops"], round_["gemm_seconds"]
    return {
        "eager": eager["median"] / strata["median"],
        "compile": compiled["median"] / strata["median"],
        "fma_share": measured["step_flops"] / strata["median"] / 1e9 / peak if peak else None,
        "gemm_share": products / strata["median"] if products else None,
        "memory": strata["peak_bytes"] / eager["peak_bytes"],
    }


def values(measured):
    """name: (median, least, greatest) over the rounds, or None."""
    rounds = [round_values(measured, round_) for round_ in measured["rounds"]]
    result = {}
    for name in GOALS:
        column = [row[name] for row in rounds]
        result[name] = None if None in column else (statistics.median(column), min(column), max(column))
    return result


def is_met(name, value, goal):
    return value is not None and (value[0] >= goal if GOALS[name][1] else value[0] <= goal)


def goal_lines(measured):
    """bench NAME MEASURED GOAL ok|short; what could not be measured is short."""
    lines = []
    for name, value in values(measured).items():
        goal = measured["goals"][name]
        shown = "missing" if value is None else f"{value[0]:.3f}"
        met = "ok" if is_met(name, value, goal) else "short"
        lines.append(f"bench {measured['workload']}_{name} {shown} {goal} {met}")
    return lines


def goal_table(measured):
    rows = ["| what | measured (median, range over rounds) | goal | |", "| --- | --- | --- | --- |"]
    for name, value in values(measured).items():
        goal, (unit, is_lower_limit) = measured["goals"][name], GOALS[name]
        shown = "missing" if value is None else f"{value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})"
        met = "ok" if is_met(name, value, goal) else "short"
        rows.append(f"| {unit} | {shown} | {'at least' if is_lower_limit else 'at most'} {goal} | {met} |")
    return rows


def system_table(measured):
    rows = ["| system | s/step | GFLOP/s | tokens/s | peak memory MiB | peak resident MiB |",
            "| --- | --- | --- | --- | --- | --- |"]
    for system in ("strata", "eager", "compile"):
        runs = [of_system(round_, system) for round_ in measured["rounds"]]
        seconds = statistics.median(run["median"] for run in runs)
        peak, resident = (max(run[key] for run in runs) / 2**20 for key in ("peak_bytes", "max_rss_bytes"))
        gflops, tokens = measured["step_flops"] / seconds / 1e9, measured["seq"] * measured["batch"] / seconds
        rows.append(f"| {system} | {seconds:.3f} | {gflops:.1f} | {tokens:.0f} | {peak:.0f} | {resident:.0f} |")
    return rows


def raw_lines(measured):
    lines = []
    for number, round_ in enumerate(measured["rounds"], 1):
        peak, products = round_["peak_gflops"], round_["gemm_seconds"]
        lines.append(f"round {number}: fma peak {peak} GFLOP/s, bare products {products} s")
        for run in round_["runs"]:
            steps = " ".join(f"{seconds:.3f}" for seconds in run["step_seconds"])
            lines.append(
                f"  {run['system']:8} steps {steps} | median {run['median']:.4f} s "
                f"| peak {run['peak_bytes'] / 2**20:.0f} MiB | loss {run['loss']:.4f} "
                f"| load before {run['load_before']:.2f}, busy before {run['busy_before']:.2f}, "
                f"foreign {run['foreign_cpu']:.2f} cores")
    return lines


def section(measured):
    warm_up = ", ".join(f"{count} {system}" for system, count in measured["warm_up_steps"].items())
    torch = of_system(measured["rounds"][0], "eager")
    title = (f"## {measured['workload']}: seq {measured['seq']}, batch {measured['batch']}, float32, AdamW, "
             f"{measured['threads']} threads")
    conditions = [
        f"{measured['machine']}; PyTorch {torch['torch']}, which holds {torch['before_model_bytes'] / 2**20:.0f} MiB",
        f"before it makes a model. Command: `{' '.join(measured['command'])}`.",
        f"A step is {measured['step_flops'] / 1e9:.1f} GFLOP. Steps of warm-up, not counted: {warm_up}."]
    raw = ["```"] + raw_lines(measured) + ["```"]
    blocks = [[title], conditions, goal_table(measured), system_table(measured), raw]
    return [line for block in blocks for line in block + [""]]


HEADER = """# Training step: Strata against PyTorch

Written by `bench/train_bench.py` from the `train_*.json` beside it. Per round each system runs once, in turn; a run
counts with the median of its steps after the warm-up. Flops of a step: linear layers, head and the causal attention
products, forward and backward, nothing recomputed. The FMA peak is `bench/fma_peak` with as many threads, in the same
round. Peak memory is the largest RssAnon + RssShmem of the process, sampled every 20 ms; peak resident adds the files
it maps. Foreign: cores kept busy by other processes during the run.
"""


def write(folder, measured):
    """Stores the raw data of one workload and rewrites train.md from all stored ones."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"train_{measured['workload']}.json").write_text(json.dumps(measured, indent=1) + "\n")
    lines = [HEADER]
    for path in sorted(folder.glob("train_*.json")):
        lines += section(json.loads(path.read_text()))
    (folder / "train.md").write_text("\n".join(lines))
