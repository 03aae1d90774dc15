# SPDX-License-Identifier: Apache-2.0
"""Tests of the arithmetic of the row of many ranks; nothing is trained."""

import argparse
import contextlib
import io
import pathlib
import tempfile
import unittest

import ranks_bench
import row
from child_process import ChildFailed
from workloads import WORKLOADS


def run(seconds):
    return {"median": seconds, "step_seconds": [9.0, seconds], "peak_bytes": 5 << 20, "loss": 4.0, "busy_before": 0.0,
            "foreign_cpu": 0.0}


def measurement(zero1):
    kinds = {"one": 1.0, "zero1": zero1, "zero1_in_turn": 1.25, "zero3": 2.0, "zero3_in_turn": 1.0}
    return {"workloads": {"gpt14m": [{kind: run(seconds) for kind, seconds in kinds.items()}] * 3},
            "machine": "a machine", "command": ["ranks_bench.py"]}


class RanksBench(unittest.TestCase):
    def test_the_faster_plan_counts(self):
        self.assertEqual(ranks_bench.goal_lines(measurement(1.0)),
                         ["bench ranks_gpt14m_zero1 1.000 0.97 ok", "bench ranks_gpt14m_zero3 1.000 0.93 ok"])
        self.assertEqual(ranks_bench.goal_lines(measurement(2.0))[0], "bench ranks_gpt14m_zero1 0.800 0.97 short")

    def test_the_batch_is_split(self):
        for name in ranks_bench.GOALS:
            workload = WORKLOADS[name]
            for kind, overrides in ranks_bench.kinds(workload).items():
                if kind != "one":
                    self.assertIn(f"--batch.micro={workload.batch // 2}", overrides)

    def test_the_report_names_every_kind(self):
        text = ranks_bench.report(measurement(1.0))
        self.assertIn("| gpt14m | zero1_in_turn | 1.250 | 0.800 |", text)
        self.assertEqual(text.count("gpt14m round"), 15)

    def test_a_child_that_fails_is_told_and_leaves_no_result(self):
        def fail(_):
            raise ChildFailed("no such child")

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as told:
            arguments = argparse.Namespace(results=pathlib.Path(folder))
            self.assertEqual(row.run(arguments, "none", fail, None, None), 1)
            self.assertEqual(list(arguments.results.iterdir()), [])
        self.assertIn("no such child", told.getvalue())


if __name__ == "__main__":
    unittest.main()
