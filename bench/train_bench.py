# SPDX-License-Identifier: Apache-2.0
"""Training step time and memory of Strata against PyTorch, eager and compiled, on the same files, in turns.

    train_bench.py [workload ...]      default: all of workloads.py

Every round runs `strata train`, PyTorch eager and PyTorch compiled, one after the other, with the peak of the machine
and the bare matrix products of a step measured beside them. A run counts with the median of its steps after the
warm-up, a comparison with the median over the rounds. Writes bench/results/train_<workload>.json (raw) and train.md
(all workloads measured so far), and prints one line per goal: bench NAME MEASURED GOAL ok|short.
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import train_report
from child_process import ChildFailed, run_child
from workloads import WORKLOADS, step_flops, write_inputs

BENCH = pathlib.Path(__file__).resolve().parent
WARM_UP_STEPS = {"strata": 2, "eager": 2, "compile": 4}


def default_python():
    cache = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("STRATA_VENV") or f"{cache}/strata/venv") / "bin" / "python"


def config_toml(workload, folder, threads):
    steps = workload.steps + WARM_UP_STEPS["strata"]
    return f"""[run]
directory = "{folder}/run"
seed = 1
threads = {threads}

[model]
config = "{folder}/config.json"
weights = "random"
precision = "f32"

[data]
train = ["{folder}/train.bin"]
validation = ["{folder}/validation.bin"]
seq = {workload.seq}

[batch]
global = {workload.batch}
micro = {workload.batch}

[optimizer]
kind = "adamw"
lr = 3e-4
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = 0.1
clip_norm = 1.0

[schedule]
kind = "constant"

[train]
max_steps = {steps}
resume = "never"

[log]
tensorboard = false
"""


def summarize(run, system, seconds, loss):
    return {
        "system": system, "step_seconds": seconds, "median": statistics.median(seconds[WARM_UP_STEPS[system]:]),
        "loss": loss, "peak_bytes": run.peak_bytes, "max_rss_bytes": run.max_rss_bytes,
        "load_before": run.load_before, "busy_before": run.busy_before, "foreign_cpu": run.foreign_cpu,
    }


def step_seconds(row):
    """Of a row of metrics.csv. The last row's total holds the evaluation and the save after it: not part of a step."""
    return round(float(row["seconds_total"]) - float(row["seconds_eval"]) - float(row["seconds_save"]), 6)


def run_strata(workload, folder, arguments, overrides=(), environment=None):
    config = folder / "config.toml"
    config.write_text(config_toml(workload, folder, arguments.threads))
    shutil.rmtree(folder / "run", ignore_errors=True)
    run = run_child([arguments.strata, "train", config, *overrides], folder / "strata.log", environment)
    with open(folder / "run" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    shutil.rmtree(folder / "run")
    return summarize(run, "strata", [step_seconds(row) for row in rows], float(rows[-1]["loss"]))


def run_torch(workload, folder, arguments, mode):
    command = [arguments.python, BENCH / "torch_train.py", folder / "config.json", folder / "train.bin", "--mode", mode,
               "--seq", str(workload.seq), "--batch", str(workload.batch), "--threads", str(arguments.threads),
               "--steps", str(workload.steps + WARM_UP_STEPS[mode])]
    # One compile process, inside ours: helpers that outlive their work would compete for the cores.
    environment = {"OMP_NUM_THREADS": str(arguments.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    run = run_child(command, folder / f"{mode}.log", environment)
    printed = json.loads(run.output.splitlines()[-1])
    result = summarize(run, mode, printed["step_seconds"], printed["loss"])
    return {**result, "before_model_bytes": printed["before_model_bytes"], "torch": printed["torch"]}


def last_number(program, arguments, folder):
    """The last word that `program` prints, or None where it has not been built."""
    if not program.exists():
        return None
    return float(run_child([program, *arguments], folder / f"{program.name}.log").output.split()[-1])


def measure_round(workload, folder, arguments):
    peak = last_number(arguments.build / "bench" / "fma_peak", [str(arguments.threads)], folder)
    runs = [] if arguments.torch_only else [run_strata(workload, folder, arguments)]
    runs += [run_torch(workload, folder, arguments, mode) for mode in ("eager", "compile")]
    products = last_number(arguments.build / "bench" / "gemm_share", [workload.name, str(arguments.threads)], folder)
    for run in runs:
        print(f"  {run['system']:8} {run['median']:.4f} s/step  {run['peak_bytes'] / 2**20:.0f} MiB  "
              f"loss {run['loss']:.3f}  foreign {run['foreign_cpu']:.2f} cores", flush=True)
    return {"peak_gflops": peak, "gemm_seconds": products, "runs": runs}


def measure(workload, arguments):
    """The whole measurement of a workload as plain data."""
    rounds = []
    with tempfile.TemporaryDirectory(prefix="strata_bench_") as name:
        folder = pathlib.Path(name)
        write_inputs(workload, folder)
        for number in range(arguments.rounds):
            print(f"{workload.name}: round {number + 1} of {arguments.rounds}", flush=True)
            rounds.append(measure_round(workload, folder, arguments))
    return {"workload": workload.name, "threads": arguments.threads, "seq": workload.seq, "batch": workload.batch,
            "step_flops": step_flops(workload), "goals": workload.goals, "warm_up_steps": WARM_UP_STEPS,
            "machine": train_report.machine(), "command": ["bench/train_bench.py", *sys.argv[1:]], "rounds": rounds}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=", ".join(WORKLOADS))
    parser.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build", help="build folder of Strata")
    parser.add_argument("--python", type=pathlib.Path, default=default_python(), help="Python with PyTorch")
    parser.add_argument("--results", type=pathlib.Path, default=BENCH / "results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch-only", action="store_true", help="measure PyTorch alone; writes no results")
    arguments = parser.parse_args()
    arguments.workloads = arguments.workloads or list(WORKLOADS)
    arguments.strata = arguments.build / "strata"
    check_arguments(parser, arguments)
    return arguments


def check_arguments(parser, arguments):
    unknown = [name for name in arguments.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]}: there are {', '.join(WORKLOADS)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    if not arguments.python.exists():
        parser.error(f"no Python at {arguments.python}: run scripts/bench_environment.sh, or set STRATA_VENV")
    if not arguments.torch_only and not arguments.strata.exists():
        parser.error(f"no {arguments.strata}: build Strata first, or give --build")


def main():
    arguments = parse_arguments()
    for name in arguments.workloads:
        try:
            measured = measure(WORKLOADS[name], arguments)
        except ChildFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        if not arguments.torch_only:
            train_report.write(arguments.results, measured)
            print("\n".join(train_report.goal_lines(measured)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
