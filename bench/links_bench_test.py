# SPDX-License-Identifier: Apache-2.0
"""Tests of the arithmetic of the row of slow links; nothing is sent and nothing is trained."""

import unittest

import links_bench

LISTING = """program step of rank 0: 27 instructions, 43 bookings
   19  data     reduce-scatter 1000 elements over data +mlp.0.gradient after(compute:12)
   20  data     all-reduce 2 elements over data +scalars
   21  data     all-gather 3000 elements over data +mlp.0.parameters
program evaluation of rank 0: 27 instructions, 43 bookings
    1  data     all-gather 9000 elements over data +mlp.0.parameters
"""


def event(name, category, start, seconds):
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": seconds * 1e6}


def trace(seconds_of_steps):
    events = [{"ph": "M", "name": "process_name"}]
    for number, seconds in enumerate(seconds_of_steps):
        events += [event("scalar reset", "scalar", 10 * number, 0), event("run", "run", 10 * number + 1, seconds),
                   event("all-gather", "collective", 10 * number + 2, 5)]
    return events


def run(seconds, **more):
    return {"median": seconds, "step_seconds": [9.0, seconds], "loss": 4.0, "busy_before": 0.0, "foreign_cpu": 0.0,
            **more}


def measurement(step):
    """Computation of 1 s and 1 MB per step; steps of `step` seconds with overlap."""
    round_ = {"free": run(1.0, compute_seconds=1.0, step_bytes=10**6), "free_overlap": run(1.0)}
    for share in links_bench.SHARES:
        round_[links_bench.name_of(share, True)] = run(step, rate_mbit=8 / share)
        round_[links_bench.name_of(share, False)] = run(2.0, rate_mbit=8 / share)
    output = "\n".join(f"round 1 bytes {2**20} {kind} {2**20 * 8 / 1e9:.6e} loops 1e-5"
                       for kind in links_bench.collectives_bench.KINDS)
    collectives = {"rate_mbit": 1000, "stream_bits": 9.4e8, "output": output, "busy_before": 0.0}
    return {"collectives": [collectives], "training": {1: [round_] * 3, 3: [round_] * 3}, "machine": "a machine",
            "command": ["links_bench.py"]}


class LinksBench(unittest.TestCase):
    def test_bytes_are_those_of_the_step_program(self):
        self.assertEqual(links_bench.step_bytes(LISTING), 4 * (1000 // 2 + 2 + 3000 // 2))

    def test_computation_leaves_out_communication_and_the_first_steps(self):
        self.assertEqual(links_bench.compute_seconds([trace([9, 9, 1, 2, 3]), trace([9, 9, 2, 3, 4])]), 3.0)

    def test_a_collective_is_compared_with_what_a_rank_sends(self):
        ratios = {kind: ratio for _, kind, _, ratio in
                  links_bench.collective_ratios(measurement(1.0)["collectives"][0])}
        self.assertAlmostEqual(ratios["all-gather"], 2.0, 4)
        self.assertAlmostEqual(ratios["all-reduce"], 1.0, 4)

    def test_a_step_is_compared_with_the_longer_of_the_two(self):
        round_ = measurement(1.5)["training"][1][0]
        self.assertAlmostEqual(links_bench.step_ratio(round_, "0.3"), 1.5)
        round_["0.3"]["rate_mbit"] = 4  # 2 s of communication
        self.assertAlmostEqual(links_bench.step_ratio(round_, "0.3"), 0.75)

    def test_goals(self):
        lines = links_bench.goal_lines(measurement(1.1))
        self.assertEqual(len(lines), 9)
        self.assertIn("bench links_1000mbit_all_gather 2.000 1.3 short", lines)
        self.assertIn("bench links_1000mbit_all_reduce 1.000 1.3 ok", lines)
        self.assertIn("bench links_zero1_0.6 1.100 1.15 ok", lines)
        self.assertIn("bench links_zero3_1.0 1.200 1.15 short", links_bench.goal_lines(measurement(1.2)))

    def test_links_have_the_rate_of_the_share(self):
        self.assertEqual(links_bench.on_hosts(250, ["x"])[1:3], ["2", "250mbit"])
        self.assertEqual(links_bench.on_hosts(None, ["x"])[1:3], ["2", "none"])

    def test_the_report_has_every_share(self):
        text = links_bench.report(measurement(1.1))
        self.assertIn("| 3 | 0.6 | 13 | 1.000 | 0.600 | 1.100 | 1.100 | 2.000 | 2.000 |", text)
        self.assertIn("(0.940 of the rate)", text)
        self.assertEqual(text.count("zero1 round"), 3 * 8)


if __name__ == "__main__":
    unittest.main()
