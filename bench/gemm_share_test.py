# SPDX-License-Identifier: Apache-2.0
"""The products that gemm_share lists are those that workloads.py counts; what it does not understand is refused.

    gemm_share_test.py GEMM_SHARE
"""

import subprocess
import sys
import unittest

from workloads import WORKLOADS, step_flops

GEMM_SHARE = sys.argv.pop(1)


def gemm_share(*arguments):
    return subprocess.run([GEMM_SHARE, *arguments], capture_output=True, text=True, check=False)


class GemmShare(unittest.TestCase):
    def test_flops_are_those_of_the_workload(self):
        for name, workload in WORKLOADS.items():
            with self.subTest(name):
                listed = gemm_share(name, "--list")
                self.assertEqual(listed.returncode, 0, listed.stderr)
                self.assertEqual(int(listed.stdout.split()[-1]), step_flops(workload))

    def refusal(self, *arguments):
        refused = gemm_share(*arguments)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        return refused.stderr

    def test_unknown_workload_is_refused_with_the_known_ones(self):
        self.assertIn("no workload 'gpt15m': there are " + ", ".join(WORKLOADS), self.refusal("gpt15m"))

    def test_wrong_threads_and_too_many_arguments_are_refused(self):
        for threads in ("0", "2x", "-1"):
            self.assertIn(f"'{threads}' threads: a number of at least 1", self.refusal("gpt14m", threads))
        self.assertIn("usage: gemm_share WORKLOAD", self.refusal())
        self.assertIn("usage: gemm_share WORKLOAD", self.refusal("gpt14m", "2", "2"))


if __name__ == "__main__":
    unittest.main()
