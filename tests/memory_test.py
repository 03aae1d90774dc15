#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Planned memory is the process's: RssAnon + RssShmem of `strata train` stays within its arena plus 64 MiB, whatever is
kept or recomputed, in f32 and bf16, from the first page to the exported model; and of each of four ranks at ZeRO 3,
which load, save and export a model that is larger than the 64 MiB (B34, B80). Prints the measured constants.

Usage: memory_test.py STRATA. Needs the standard library, and mpirun for the ranks.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ALLOWED = 64 << 20
LEAST_ARENA = 200 << 20
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MODEL = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 256, "n_embd": 448,
    "n_layer": 6, "n_head": 7, "activation_function": "gelu_new", "attn_pdrop": 0.1, "resid_pdrop": 0.1,
    "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": True,
    "bos_token_id": 256, "eos_token_id": 256,
}
CONFIG = """
[run]
directory = "{folder}/run"
threads = 2
[model]
config = "{folder}/config.json"
precision = "{precision}"
[data]
train = ["{folder}/train.txt"]
validation_fraction = 0.1
[batch]
micro = 4
[train]
max_steps = 2
eval_samples = 4
save_every = 1
keep_last = 1
[parallel]
activations = "{activations}"
"""


def resident_bytes(pid):
    """RssAnon + RssShmem; 0 when the process has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(number) for number in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE))


def measure(strata, folder):
    """(arena, peak) in bytes."""
    log_path = folder / "log"
    command = [strata, "train", folder / "train.toml"]
    with open(log_path, "w") as log, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            time.sleep(0.002)
    log = log_path.read_text()
    if process.returncode != 0:
        sys.exit(log)
    number, unit = re.search(r"^memory: arena ([\d.]+) (\w+),", log, re.MULTILINE).groups()
    return float(number) * UNITS[unit], peak


RANKS = 4
RANKS_MODEL = {**MODEL, "n_embd": 512, "n_layer": 8, "n_head": 8}  # 25 million parameters
RANKS_SECONDS = 240


def peaks_of_ranks(command, log):
    """Peaks of the processes that the ranks are, in bytes."""
    peaks = {}
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
    with subprocess.Popen([*command, "--ranks", str(RANKS)], stdout=subprocess.DEVNULL, stderr=log,
                          env=environment) as process:
        deadline = time.monotonic() + RANKS_SECONDS
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
                sys.exit("the ranks do not end")
            for pid in ranks_of(command):
                if pid != process.pid:
                    peaks[pid] = max(peaks.get(pid, 0), resident_bytes(pid))
            time.sleep(0.005)
    return process.returncode, sorted(peaks.values())


def ranks_of(command):
    """Processes with this command's program and config."""
    binary, config, pids = os.path.realpath(command[0]), os.fsencode(command[2]), []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "exe") == binary and config in (path / "cmdline").read_bytes():
                pids.append(int(path.name))
        except OSError:  # it has ended, or is another user's
            pass
    return pids


def check_ranks(strata):
    """Four ranks train on what one has exported; none holds more than its arena and the constant."""
    with tempfile.TemporaryDirectory(prefix="strata_memory_") as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(RANKS_MODEL))
        (folder / "train.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)
        (folder / "train.toml").write_text(CONFIG.format(folder=folder, precision="f32", activations="keep"))
        command = [str(strata), "train", str(folder / "train.toml"), "--data.seq=32", "--batch.micro=1"]
        subprocess.run([*command, "--train.max_steps=1"], check=True, capture_output=True)
        (folder / "run").rename(folder / "first")
        command += [f"--model.weights={folder}/first/model", "--parallel.zero=3"]
        with open(folder / "log", "w") as log:
            code, peaks = peaks_of_ranks(command, log)
        log = (folder / "log").read_text()
        if code != 0:
            sys.exit(log)
        number, unit = re.search(r"^memory: arena ([\d.]+) (\w+),", log, re.MULTILINE).groups()
        arena = float(number) * UNITS[unit]
        model = (folder / "first" / "model" / "model.safetensors").stat().st_size
        fine = len(peaks) == RANKS and peaks[0] > arena / 2 and peaks[-1] <= arena + ALLOWED < arena + model
        for peak in peaks:
            print(f"rank of {RANKS}, ZeRO 3  arena {arena / 2**20:7.1f} MiB  RssAnon + RssShmem {peak / 2**20:7.1f} MiB  "
                  f"difference {(peak - arena) / 2**20:6.1f} MiB  {'ok' if fine else 'FAILED'}", flush=True)
        return fine


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = False
    for precision in ("f32", "bf16"):
        for activations in ("keep", "selective", "full"):
            with tempfile.TemporaryDirectory(prefix="strata_memory_") as name:
                folder = pathlib.Path(name)
                (folder / "config.json").write_text(json.dumps(MODEL))
                (folder / "train.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)
                text = CONFIG.format(folder=folder, precision=precision, activations=activations)
                (folder / "train.toml").write_text(text)
                arena, peak = measure(sys.argv[1], folder)
            # Less than half of the arena touched would be a measurement that missed the step.
            fine = arena >= LEAST_ARENA and arena / 2 < peak <= arena + ALLOWED
            failed = failed or not fine
            print(f"{precision:4} {activations:9}  arena {arena / 2**20:7.1f} MiB  "
                  f"RssAnon + RssShmem {peak / 2**20:7.1f} MiB  difference {(peak - arena) / 2**20:6.1f} MiB  "
                  f"{'ok' if fine else 'FAILED'}", flush=True)
    failed = not check_ranks(sys.argv[1]) or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
