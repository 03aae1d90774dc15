#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with several ranks from outside: what `strata train --ranks` and mpirun by hand refuse and with which exit
code, signals, and resuming under every layout. Usage: ranks_test.py STRATA MPIEXEC [unittest options]
"""
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from command_case import BAD_INPUT, DONE, FAILED, MODEL, STOPPED, CommandTest, main

MPIEXEC = sys.argv.pop(2) if len(sys.argv) > 2 else "mpirun"
RANKS_TIMEOUT = 60
GLOBAL_4 = ("--batch.micro=1", "--batch.global=4")
LAYOUTS = [  # number of ranks, options
    (4, ("--parallel.tp=2", "--parallel.pp=2")),
    (1, ()),
    (2, ("--parallel.tp=2",)),
    (2, ("--parallel.pp=2",)),
    (4, ("--parallel.zero=3",)),
    (2, ("--parallel.zero=1",)),
    (4, ("--parallel.pp=2", "--parallel.zero=2")),
    (2, ("--parallel.cp=2",)),
]


class RanksTest(CommandTest):
    def run_words(self, words, **options):
        """In a session of its own, so that a hang ends with all its processes."""
        with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True, **options) as process:
            try:
                output, errors = process.communicate(timeout=RANKS_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def ranks(self, number, *overrides, **options):
        words = [self.binary, "train", self.config, "--ranks", number, *GLOBAL_4, *overrides]
        return self.run_words(words, **options)

    def by_hand(self, number, words, **options):
        return self.run_words([MPIEXEC, "-n", number, *words], **options)

    def assert_told_once(self, result, code, *parts):
        """Like assert_refused; mpirun adds lines of its own."""
        self.assertEqual(result.returncode, code, result.stderr)
        errors = [line for line in result.stderr.splitlines() if line.startswith("strata: ")]
        self.assertEqual(len(errors), 1, result.stderr)
        for part in parts:
            self.assertIn(part, errors[0])
        self.assertNotIn("bug", errors[0])

    def write_plan(self, num_ranks):
        plan = {"num_ranks": num_ranks, "stage_layers": [6], "layers": [{"count": 6, "dp": num_ranks}],
                "micro_batch": 1, "accumulation": 4 // num_ranks, "reduce": "last", "threads": 1}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        return f"--parallel.plan={self.folder}/plan.json"

    def losses(self, run_folder=None):
        with open((run_folder or self.run_folder) / "metrics.csv", encoding="utf-8") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def assert_losses(self, expected):
        """Other sums: f32 rounding, which six steps of AdamW (lr 3e-4) raise to 1e-5 at most."""
        losses = self.losses()
        self.assertEqual(len(losses), len(expected))
        for loss, other in zip(losses, expected):
            self.assertAlmostEqual(loss, other, delta=1e-4)


class BeforeTheStart(RanksTest):
    """The starting process refuses: nothing of mpirun is seen."""

    def test_numbers_that_do_not_fit(self):
        model_ranks = ("--parallel.tp=2", "--parallel.pp=2")
        self.assert_refused(self.ranks(5, *model_ranks), BAD_INPUT, "5 ranks", "parallel.tp 2", "parallel.pp 2", "of 4")
        self.assert_refused(self.ranks(3), BAD_INPUT, "batch.global 4", "3 data-parallel ranks")
        self.assert_refused(self.ranks(8, "--parallel.pp=8"), BAD_INPUT, "parallel.pp is 8", "6 layers")
        self.write_model({**MODEL, "n_head": 6, "n_embd": 48})
        self.assert_refused(self.ranks(4, "--parallel.tp=4"), BAD_INPUT, "6", "heads", "4")
        self.assert_refused(self.ranks("many"), BAD_INPUT, "--ranks", "many")
        self.assertFalse(self.run_folder.exists())

    def test_plan_for_another_number(self):
        plan = self.write_plan(2)
        self.assert_refused(self.ranks(4, plan), BAD_INPUT, "has 2 ranks and 4 run", "--ranks 2")
        self.assert_done(self.ranks(2, plan))

    def test_no_mpirun(self):
        result = self.ranks(2, env={**os.environ, "PATH": str(self.folder)})
        self.assert_refused(result, FAILED, "no mpirun")

    def test_check_prints_the_ranks(self):
        result = self.strata("check", self.config, "--ranks", 4, *GLOBAL_4, *LAYOUTS[0][1])
        self.assert_done(result)
        self.assertIn("4 = 2 stages x dp 1 x cp 1 x tp 2", result.stdout)
        arenas = [line.split() for line in result.stdout.splitlines() if line.startswith("  rank ")]
        self.assertEqual([line[1] for line in arenas], ["0", "1", "2", "3"])
        self.assertTrue(all(line[3] == "KiB" and float(line[2]) > 0 for line in arenas), arenas)


class WhileRunning(RanksTest):
    def test_data_errors_end_all_and_are_told_once(self):
        (self.folder / "bad.txt").write_bytes(b"abc\xff def" * 9)
        result = self.ranks(4, f"--data.train={self.folder}/bad.txt")
        self.assert_told_once(result, BAD_INPUT, "bad.txt", "byte 3", "0xff")

    def test_other_data_on_resume(self):
        self.assert_done(self.ranks(2))
        (self.folder / "other.txt").write_text("Something else. " * 50)
        self.assert_told_once(self.ranks(4, f"--data.train={self.folder}/other.txt"), BAD_INPUT, "fingerprint")

    def test_must_resume(self):
        self.assert_told_once(self.ranks(2, "--train.resume=must"), BAD_INPUT, "train.resume", "no checkpoint")

    def test_run_folder_is_a_file(self):
        self.run_folder.write_text("mine")
        self.assert_told_once(self.ranks(2), BAD_INPUT, str(self.run_folder))


class ByHand(RanksTest):
    """Case B83: however ranks are started, they are the same ranks, or refused."""

    def test_other_number_than_asked_for(self):
        result = self.by_hand(2, [self.binary, "train", self.config, "--ranks", 4, *GLOBAL_4])
        self.assert_told_once(result, BAD_INPUT, "--ranks is 4", "2 ranks")

    def two_ranks(self, *options):
        return self.by_hand(2, [self.binary, "train", self.config, *GLOBAL_4, *options])

    def with_option_by_rank(self, option):
        """Two ranks; $rank in the option is theirs."""
        words = f'rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; exec {self.binary} train {self.config}'
        return self.by_hand(2, ["sh", "-c", f'{words} {" ".join(GLOBAL_4)} {option}'])

    def test_configs_that_differ(self):
        result = self.with_option_by_rank("--optimizer.lr=0.00$((1 + rank))")
        self.assert_told_once(result, BAD_INPUT, "config of rank 1 differs", "rank 0")

    def test_what_all_refuse_is_told_once(self):
        self.assert_told_once(self.two_ranks("--optimizer.learning_rte=1"), BAD_INPUT, "strata: ", "learning_rte")
        self.assert_told_once(self.two_ranks("lr=1"), BAD_INPUT, "strata: unexpected argument 'lr=1'")
        self.assert_told_once(self.two_ranks("--parallel.tp=3"), BAD_INPUT, "strata: 2 ranks are no multiple")
        self.assert_told_once(self.two_ranks(self.write_plan(4)), BAD_INPUT, "strata: the plan", "has 4 ranks and 2 run")
        self.assert_told_once(self.two_ranks("--memory.device=1KiB"), BAD_INPUT, "strata: the plan needs", "1.0 KiB")
        self.assert_told_once(self.two_ranks("--schedule.warmup_steps=99"), BAD_INPUT, "warmup_steps", "99")
        self.assert_told_once(self.two_ranks(f"--model.weights={self.folder}/none"), BAD_INPUT, f"{self.folder}/none")
        (self.folder / "plan.json").write_text("{")
        self.assert_told_once(self.two_ranks(f"--parallel.plan={self.folder}/plan.json"), BAD_INPUT, "plan.json")
        (self.folder / "config.json").write_text("{}")
        self.assert_told_once(self.two_ranks(), BAD_INPUT, f"strata: {self.folder}/config.json")
        self.config.unlink()
        self.assert_told_once(self.two_ranks(), BAD_INPUT, f"strata: cannot read {self.config}")

    def test_what_one_refuses_is_told_with_its_rank(self):
        for bad in (0, 1):
            with self.subTest(rank=bad):
                result = self.with_option_by_rank(f"--optimizer.lr=$((rank == {bad} ? 0 : 1))")
                self.assert_told_once(result, BAD_INPUT, f"strata: rank {bad}: ", "optimizer.lr")

    # B73: the second rank cannot write its part of the checkpoint.
    def test_a_failure_of_one_ends_all(self):
        limit = "ulimit -f $((rank == 1 ? 8 : 1000000));"
        words = [self.binary, "train", self.config, *GLOBAL_4, "--parallel.zero=1", "--log.tensorboard=false"]
        script = f'rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; {limit} exec {" ".join(map(str, words))}'
        result = self.by_hand(2, ["sh", "-c", script])
        self.assert_told_once(result, FAILED, "strata: rank 1: ", "rank-00001.bin")
        self.assertFalse(self.run_folder.joinpath("checkpoints", "step-00000002").exists())

    def test_the_same_ranks(self):
        result = self.ranks(2)
        self.assert_done(result)
        self.assertIn("step 6/6  loss ", result.stdout)
        self.assertNotIn("\x1b", result.stdout + result.stderr)  # plain lines: nobody reads
        started = self.losses()
        for options in ((), ("--ranks", 2)):
            shutil.rmtree(self.run_folder)
            self.assert_done(self.two_ranks(*options))
            self.assertEqual(self.losses(), started)

    def test_one_rank(self):
        self.assert_done(self.train(*GLOBAL_4))
        alone = self.losses()
        shutil.rmtree(self.run_folder)
        self.assert_done(self.by_hand(1, [self.binary, "train", self.config, *GLOBAL_4]))
        self.assertEqual(self.losses(), alone)


class Resuming(RanksTest):
    # B25, B26, B27, B37, B41: nothing hangs, and every layout goes on where the one before it stopped.
    def test_every_layout_goes_on(self):
        self.assert_done(self.train(*GLOBAL_4, f"--train.max_steps={len(LAYOUTS)}", "--schedule.kind=constant",
                                    f"--run.directory={self.folder}/whole"))
        expected = self.losses(self.folder / "whole")
        for step, (number, options) in enumerate(LAYOUTS, 1):
            with self.subTest(ranks=number, options=options):
                self.assert_done(self.ranks(number, f"--train.max_steps={step}", "--schedule.kind=constant", *options))
        self.assert_losses(expected)

    # B74: 10 samples in batches of 4 over 4 data-parallel ranks; the last batch has none for two of them.
    def test_a_batch_smaller_than_the_ranks(self):
        (self.folder / "train.txt").write_text("0123456789abcdef" * 10 + "0")
        epochs = ("--data.validation_fraction=0", "--train.max_steps=0", "--train.epochs=1")
        self.assert_done(self.train(*GLOBAL_4, *epochs, f"--run.directory={self.folder}/one"))
        self.assert_done(self.ranks(4, *epochs))
        expected = self.losses(self.folder / "one")
        self.assertEqual(len(expected), 3)
        self.assert_losses(expected)


class Signals(RanksTest):
    LONG = ("--train.max_steps=1000000", "--train.save_every=0", "--train.keep_last=1000")

    def start(self):
        words = [self.binary, "train", self.config, "--ranks", "4", *GLOBAL_4, *LAYOUTS[0][1], *self.LONG]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        steps = self.steps()
        self.wait_for(process, lambda: self.steps() > steps + 2)
        return process

    def steps(self):
        return len(self.losses()) if (self.run_folder / "metrics.csv").exists() else 0

    def wait_for(self, process, condition):
        deadline = time.monotonic() + RANKS_TIMEOUT
        while not condition():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_stop_and_resume(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                process = self.start()
                process.send_signal(number)
                output, _ = process.communicate(timeout=RANKS_TIMEOUT)
                self.assertEqual(process.returncode, STOPPED)
                last = output.splitlines()[-1]
                self.assertIn("the same command resumes", last)
                step = int(last.split("step ")[1].split()[0])
                self.assertEqual(step, self.steps())
                result = self.ranks(2, f"--train.max_steps={step + 1}")
                self.assert_done(result)
                self.assertIn(f"resumed from {self.run_folder}/checkpoints/step-{step:08}", result.stderr)

    def test_save_now(self):
        process = self.start()
        self.assertEqual(self.checkpoints(), [])
        process.send_signal(signal.SIGUSR1)
        self.wait_for(process, lambda: self.checkpoints() and ".tmp-" not in self.checkpoints()[-1])
        steps = self.steps()
        self.wait_for(process, lambda: self.steps() > steps)

    # The ranks end with the process that started them.
    def test_killed(self):
        process = self.start()
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while self.ranks_alive():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assert_done(self.ranks(4, *LAYOUTS[0][1], "--train.max_steps=3"))

    def ranks_alive(self):
        """Processes that work on this test's config."""
        config, alive = str(self.config).encode(), []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                alive += [path.parent.name] if config in path.read_bytes() else []
            except OSError:  # it has ended meanwhile
                pass
        return alive


if __name__ == "__main__":
    # More ranks than cores, as root too: Open MPI's variables, where the caller has not set them.
    for name, value in {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                        "OMPI_MCA_mpi_yield_when_idle": "1"}.items():
        os.environ.setdefault(name, value)
    main(__doc__)
