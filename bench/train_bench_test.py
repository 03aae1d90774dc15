# SPDX-License-Identifier: Apache-2.0
"""Tests of the training benchmark's own arithmetic, files and failures; no training system is run."""

import argparse
import contextlib
import io
import pathlib
import struct
import sys
import tempfile
import unittest

import child_process
import train_bench
import train_report
import workloads


def one_round(strata, eager, compiled, strata_bytes=100, eager_bytes=400, peak=200.0, products=0.8):
    def run(system, seconds, peak_bytes):
        return {"system": system, "step_seconds": [9.0, seconds], "median": seconds, "loss": 5.0,
                "peak_bytes": peak_bytes, "max_rss_bytes": peak_bytes, "load_before": 0.1, "busy_before": 0.0,
                "foreign_cpu": 0.0, "torch": "2", "before_model_bytes": 1}
    return {"peak_gflops": peak, "gemm_seconds": products, "runs": [
        run("strata", strata, strata_bytes), run("eager", eager, eager_bytes), run("compile", compiled, eager_bytes)]}


def measurement(rounds):
    return {"workload": "tiny", "threads": 2, "step_flops": 140e9, "seq": 8, "batch": 2, "machine": "a machine",
            "command": ["bench/train_bench.py", "tiny"], "warm_up_steps": {"strata": 1}, "rounds": rounds,
            "goals": {"eager": 1.25, "compile": 1.1, "fma_share": 0.68, "gemm_share": 0.9, "memory": 0.5}}


class Workloads(unittest.TestCase):
    def test_flops_of_a_model_counted_by_hand(self):
        # hidden 4, 2 heads of 2, 1 kv head, ffn 6, vocab 10, one block; 2 samples of 3 tokens.
        # Per token: q 16 + k 8 + v 8 + output 16 + gate, up, down 72 + head 40 = 160 weights, 6 flops each: 5760 for 6.
        # Pairs: 2 * (1 + 2 + 3) = 12; QK' and PV: 2 * 2 * 4 flops a pair, three times (forward, backward twice): 576.
        config = workloads.llama_config(1, 4, 2, 1, 6, 10, 8)
        workload = workloads.Workload("tiny", config, seq=3, batch=2, steps=1, goals={})
        self.assertEqual(workloads.step_flops(workload), 5760 + 576)

    def test_gpt2_products_are_twelve_squares_a_block_and_the_head(self):
        self.assertEqual(workloads.weights_in_products(workloads.gpt2_config(2, 4, 2, 10, 8)), 2 * 12 * 16 + 40)

    def test_token_file_is_a_header_and_two_bytes_an_id(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokens.bin"
            ids = workloads.pseudo_text(50257, 1000, seed=1)
            workloads.write_token_file(path, ids)
            data = path.read_bytes()
        self.assertEqual(struct.unpack_from("<3i", data), (20240520, 1, 1000))
        self.assertEqual(len(data), 1024 + 2000)
        self.assertEqual(list(struct.unpack_from("<1000H", data, 1024)), list(ids))

    def test_pseudo_text_is_fixed_and_never_ends_a_document(self):
        ids = workloads.pseudo_text(97, 20000, seed=1)
        self.assertEqual(ids, workloads.pseudo_text(97, 20000, seed=1))
        self.assertEqual((min(ids), max(ids)), (1, 96))


class Report(unittest.TestCase):
    def test_comparisons_are_medians_of_the_rounds(self):
        measured = measurement([one_round(1.0, 1.2, 1.1), one_round(2.0, 2.6, 2.2), one_round(1.0, 1.4, 1.2)])
        self.assertEqual(train_report.goal_lines(measured), [
            "bench tiny_eager 1.300 1.25 ok", "bench tiny_compile 1.100 1.1 ok", "bench tiny_fma_share 0.700 0.68 ok",
            "bench tiny_gemm_share 0.800 0.9 short", "bench tiny_memory 0.250 0.5 ok"])

    def test_more_memory_than_the_goal_is_short(self):
        measured = measurement([one_round(1.0, 1.0, 1.0, strata_bytes=300)])
        self.assertIn("bench tiny_memory 0.750 0.5 short", train_report.goal_lines(measured))

    def test_what_was_not_measured_is_short(self):
        measured = measurement([one_round(1.0, 2.0, 2.0, products=None)])
        self.assertIn("bench tiny_gemm_share missing 0.9 short", train_report.goal_lines(measured))

    def test_results_keep_the_other_workloads(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tiny", "small"):
                train_report.write(folder, {**measurement([one_round(1.0, 2.0, 2.0)]), "workload": name})
            text = (pathlib.Path(folder) / "train.md").read_text()
        self.assertIn("## small", text)
        self.assertIn("## tiny", text)


class ChildProcess(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = pathlib.Path(self.folder.name) / "child.log"

    def test_peak_memory_counts_what_was_held_for_a_moment(self):
        code = "import time; block = bytearray(200 << 20); time.sleep(0.3); del block; time.sleep(0.1); print('done')"
        run = child_process.run_child([sys.executable, "-c", code], self.log)
        self.assertEqual(run.output, "done\n")
        self.assertGreater(run.peak_bytes, 200 << 20)
        self.assertLess(run.peak_bytes, 260 << 20)  # an interpreter takes about 10 MiB

    def test_failure_says_what_failed_and_its_last_lines(self):
        code = "import sys; sys.stderr.write('no such plan\\n'); sys.exit(2)"
        with self.assertRaisesRegex(child_process.ChildFailed, "exit status 2\nno such plan"):
            child_process.run_child([sys.executable, "-c", code], self.log)


# Stands in for the command: reads the folder of the run from the config and writes two steps of metrics.
STAND_IN = '''#!/usr/bin/env python3
import pathlib, sys
assert sys.argv[1] == "train"
config = pathlib.Path(sys.argv[2]).read_text()
run = pathlib.Path(next(line.split('"')[1] for line in config.splitlines() if line.startswith("directory")))
run.mkdir()
rows = ["step,loss,seconds_total,seconds_save,seconds_eval", "1,5.0,9.0,0,0", "2,4.9,8.0,0,0", "3,4.8,2.0,0,0",
        "4,4.5," + ("31.0,20,10" if sys.argv[3:] == [] else "32.0,20,10")]
(run / "metrics.csv").write_text("\\n".join(rows) + "\\n")
'''


class StrataRun(unittest.TestCase):
    def run_stand_in(self, *options):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "strata").write_text(STAND_IN)
            (folder / "strata").chmod(0o755)
            arguments = argparse.Namespace(strata=folder / "strata", threads=2)
            run = train_bench.run_strata(workloads.WORKLOADS["gpt14m"], folder, arguments, *options)
            self.assertFalse((folder / "run").exists())
        return run

    def test_steps_come_from_the_metrics_without_the_warm_up(self):
        run = self.run_stand_in()
        self.assertEqual((run["median"], run["loss"]), (1.5, 4.5))

    def test_evaluation_and_save_are_no_part_of_the_last_step(self):
        self.assertEqual(self.run_stand_in()["step_seconds"], [9.0, 8.0, 2.0, 1.0])

    def test_overrides_reach_the_command(self):
        self.assertEqual(self.run_stand_in(["--model.precision=bf16"])["step_seconds"][-1], 2.0)


class Arguments(unittest.TestCase):
    def refusal(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as stopped:
            sys.argv = ["train_bench.py", *arguments]
            train_bench.parse_arguments()
        self.assertEqual(stopped.exception.code, 2)
        return errors.getvalue()

    def test_unknown_workload_is_refused_with_the_known_ones(self):
        self.assertIn("no workload gpt15m: there are gpt14m, gpt124m, llama55m", self.refusal("gpt15m"))

    def test_no_rounds_are_refused(self):
        self.assertIn("--rounds and --threads must be at least 1", self.refusal("--rounds", "0"))

    def test_missing_python_and_missing_build_are_refused(self):
        self.assertIn("run scripts/bench_environment.sh", self.refusal("--python", "/nowhere/python"))
        self.assertIn("build Strata first", self.refusal("--python", sys.executable, "--build", "/nowhere"))


if __name__ == "__main__":
    unittest.main()
