#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Case B73: whatever happens to one rank of four, all ranks end, the exit code is not 0 and the message
names what happened. That this takes less than 10 s is measured by proofs/kill_ranks.sh: here the machine may be busy.
Usage: faults_test.py MPIEXEC FAULTS"""
import subprocess
import sys
import unittest

MPIEXEC, FAULTS = sys.argv.pop(1), sys.argv.pop(1)
SECONDS_TO_END = 120


class Faults(unittest.TestCase):
    def ended(self, path, what, *messages):
        done = subprocess.run([MPIEXEC, "-n", "4", FAULTS, path, what], capture_output=True, text=True,
                              timeout=SECONDS_TO_END)
        self.assertNotEqual(done.returncode, 0, what)
        for message in messages:
            self.assertIn(message, done.stdout + done.stderr, what)

    def both(self, what, *messages):
        for path in ("shared", "messages"):
            with self.subTest(path=path):
                self.ended(path, what, *messages)

    def test_throws(self):
        self.both("throw", "the disk is full")

    def test_is_killed(self):
        self.both("kill")

    def test_terminates(self):
        self.both("terminate")

    def test_aborts(self):
        self.both("abort", "strata: rank 1 ended the run: the disk is full")

    def test_does_not_come(self):
        self.both("absent", "all-reduce of 100000 f32 in group 'world': waited 0.5 s for ranks 1")

    def test_does_not_make_the_group(self):
        self.both("no-group", "rank 0: making group 'world': waited 0.5 s for ranks 1")

    def test_does_not_send(self):
        self.both("no-receiver", "receive of 8 bytes on lane 3: waited 0.5 s for ranks 1")

    def test_sends_another_size(self):
        self.both("message-sizes", "receive of 16 bytes on lane 3: 8 bytes from rank 1 where 16 were expected")

    def test_calls_with_another_size(self):
        self.ended("shared", "sizes", "rank 1 calls all-reduce of 100000 f32", "calls all-reduce of 100004 f32")

    def test_gives_a_part_of_another_size(self):
        self.ended("shared", "parts", "all-to-all in group 'world': member 1 gives 9 bytes to member",
                   "which expects 8")

    def test_gives_what_cannot_be_read(self):
        self.ended("shared", "unreadable",
                   "all-gather of 4194304 u8 in group 'world': cannot read 1048576 bytes of rank 1")


if __name__ == "__main__":
    unittest.main()
