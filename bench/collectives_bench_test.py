# SPDX-License-Identifier: Apache-2.0
"""Tests of the collectives benchmark's own arithmetic and parsing; nothing is measured."""

import contextlib
import io
import sys
import unittest

import collectives_bench
from child_process import ChildRun

OUTPUT = """other text
round 1 bytes 16 all-reduce 1.000e-06 loops 1.000e-09
round 1 bytes 1048576 all-reduce 2.000e-04 loops 1.000e-04
round 1 bytes 4194304 all-reduce 4.000e-04 loops 4.000e-04
round 2 bytes 1048576 all-reduce 1.200e-04 loops 1.000e-04
round 3 bytes 1048576 all-reduce 1.100e-04 loops 1.000e-04
round 1 bytes 1048576 all-gather 3.000e-04 loops 1.000e-04
"""


class CollectivesBench(unittest.TestCase):
    def test_goals_compare_the_worst_size_by_its_median_over_rounds(self):
        self.assertEqual(collectives_bench.goal_lines(collectives_bench.parse(OUTPUT)),
                         ["bench collectives_reduce_scatter missing 1.3 short",
                          "bench collectives_all_gather 3.000 1.3 short", "bench collectives_all_reduce 1.200 1.3 ok"])

    def test_report_has_medians_and_no_ratio_of_small_messages(self):
        run = ChildRun(output=OUTPUT, seconds=1, peak_bytes=0, max_rss_bytes=0, load_before=0, busy_before=0.25,
                       foreign_cpu=0.5)
        report = collectives_bench.report(collectives_bench.parse(OUTPUT), run, ["collectives_bench.py"])
        self.assertIn("| 1 MiB | all-reduce | 120.0 | 100.0 | 1.20 |", report)
        self.assertIn("| 16 B | all-reduce | 1.0 | 0.0 |  |", report)
        self.assertIn("others kept 0.50 cores busy", report)

    def test_missing_build_and_no_rounds_are_refused(self):
        for arguments, message in ((["--build", "/nowhere"], "build Strata first"), (["--rounds", "0"], "at least 1")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as stopped:
                sys.argv = ["collectives_bench.py", *arguments]
                collectives_bench.parse_arguments()
            self.assertEqual(stopped.exception.code, 2)
            self.assertIn(message, errors.getvalue())


if __name__ == "__main__":
    unittest.main()
