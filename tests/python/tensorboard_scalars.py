#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's own reader shows every step of a resumed run once. Usage: tensorboard_scalars.py WRITE_EVENTS

Exits 77 (skipped) when the package tensorboard is missing.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TAGS = [
    "train/tokens_seen", "train/loss", "train/learning_rate", "train/grad_norm", "speed/tokens_per_second", "speed/mfu",
    "memory/resident_bytes", "seconds/total", "seconds/compute", "seconds/data", "seconds/save", "seconds/eval",
    "train/skipped_steps", "validation/loss",
]


def write(folder, resumed_step, last_step, loss):
    subprocess.run([sys.argv[1], folder, str(resumed_step), str(last_step), str(loss)], check=True)


def points(reader, tag):
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def equal(got, expected, what):
    if got != expected:
        sys.exit(f"{what}:\n  got      {got}\n  expected {expected}")


def check(reader, what):
    """Steps 1-10 of the first process (loss 4), 11-20 of the second (loss 2)."""
    equal(sorted(reader.Tags()["scalars"]), sorted(TAGS), f"{what}: tags")
    loss = [(step, 4.0 if step <= 10 else 2.0) for step in range(1, 21)]
    equal(points(reader, "train/loss"), loss, f"{what}: loss")
    equal(points(reader, "train/tokens_seen"), [(step, 1000.0 * step) for step in range(1, 21)], f"{what}: tokens")
    equal(points(reader, "memory/resident_bytes")[0], (1, 2.0**33), f"{what}: memory")
    validation = [(4, 5.0), (8, 5.0), (12, 3.0), (16, 3.0), (20, 3.0)]
    equal(points(reader, "validation/loss"), validation, f"{what}: validation")


def main():
    with tempfile.TemporaryDirectory() as parent:
        folder = str(pathlib.Path(parent) / "tensorboard")
        write(folder, 0, 13, 4.0)  # saved at 10, killed at 13
        watching = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
        equal(len(points(watching, "train/loss")), 13, "before the resume")
        write(folder, 10, 20, 2.0)
        check(watching.Reload(), "a reader that was watching")
        check(event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0}).Reload(), "a fresh reader")
    print("TensorBoard shows every step once")


if __name__ == "__main__":
    main()
