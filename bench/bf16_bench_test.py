# SPDX-License-Identifier: Apache-2.0
"""Tests of the bf16 benchmark's own arithmetic and parsing; nothing is trained."""

import contextlib
import io
import sys
import unittest

import bf16_bench

CHECK_REPORT = """model          gpt2: 6 blocks
disk           checkpoints 476.9 MiB

step
device memory in bytes, fullest at instruction 32
  parameters               100  100 B
  activations              300  300 B
  alive                    400  400 B

evaluation
device memory in bytes, fullest at instruction 31
  parameters               999  999 B
"""


def run(seconds):
    return {"median": seconds, "step_seconds": [9.0, seconds], "peak_bytes": 5 << 20, "loss": 4.0, "busy_before": 0.0,
            "foreign_cpu": 0.0}


def measurement(converted, activations):
    return {"workload": "tiny", "threads": 2, "native": False, "machine": "a machine", "command": ["bf16_bench.py"],
            "rounds": [{"f32": run(1.0), "converted": run(seconds)} for seconds in converted],
            "ledgers": {"f32": {"parameters": 100, "activations": 300},
                        "bf16": {"parameters": 50, "activations": activations}}}


class Bf16Bench(unittest.TestCase):
    def test_ledger_is_that_of_the_step(self):
        self.assertEqual(bf16_bench.ledger_bytes(CHECK_REPORT), {"parameters": 100, "activations": 300, "alive": 400})

    def test_goals_are_upper_limits_of_medians_over_rounds(self):
        self.assertEqual(bf16_bench.goal_lines(measurement([1.0, 1.05, 3.0], 150)),
                         ["bench bf16_converted_time 1.050 1.1 ok", "bench bf16_memory 0.500 0.51 ok"])
        self.assertEqual(bf16_bench.goal_lines(measurement([1.2], 300)),
                         ["bench bf16_converted_time 1.200 1.1 short", "bench bf16_memory 0.875 0.51 short"])

    def test_native_path_runs_where_the_cpu_has_it(self):
        self.assertTrue(bf16_bench.has_native_bf16("model name\t: X\nflags\t\t: fpu avx512_bf16 avx\n"))
        self.assertFalse(bf16_bench.has_native_bf16("model name\t: avx512_bf16\nflags\t\t: fpu avx512f\n"))
        self.assertEqual(list(bf16_bench.paths(True)), ["f32", "converted", "native"])
        self.assertEqual(list(bf16_bench.paths(False)), ["f32", "converted"])

    def test_report_says_which_path_ran(self):
        self.assertIn("has no native bf16: every run converts", bf16_bench.report(measurement([1.0], 150)))

    def test_missing_build_and_no_rounds_are_refused(self):
        for arguments, message in ((["--build", "/nowhere"], "build Strata first"), (["--rounds", "0"], "at least 1")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as stopped:
                sys.argv = ["bf16_bench.py", *arguments]
                bf16_bench.parse_arguments()
            self.assertEqual(stopped.exception.code, 2)
            self.assertIn(message, errors.getvalue())


if __name__ == "__main__":
    unittest.main()
