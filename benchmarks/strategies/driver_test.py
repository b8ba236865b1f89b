#!/usr/bin/env python3
"""The arithmetic of script/bench strategies."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_a_ratio_is_the_median_of_the_pairs(self):
        row, = run.rows_of("pipeline", "m", {"": [1.0, 2.0, 4.0], "torch": [2.0, 2.0, 12.0]})
        self.assertEqual((row["ratio"], row["lockstep"], row["peer_value"], row["pairs"]), (2.0, 2.0, 2.0, 3))
        self.assertEqual((row["ratio_low"], row["ratio_high"]), (1.5, 2.5))

    def test_a_pair_that_a_peer_did_not_finish_counts_for_nothing(self):
        row, = run.rows_of("pipeline", "m", {"": [1.0, 2.0], "torch": [None, 8.0]})
        self.assertEqual((row["ratio"], row["lockstep"], row["pairs"]), (4.0, 2.0, 1))
        self.assertEqual(list(run.rows_of("pipeline", "m", {"": [1.0], "torch": [None]})), [])

    def test_turns_change_their_order(self):
        order = []

        class Contestant:
            may_fail = False

            def __init__(self, name):
                self.name = name

            def run_with(self, words, timeout):
                order.append(self.name)
                return [{"seconds": 1.0}]

        found = run.turns.measure(2, Contestant("ours"), {"torch": Contestant("torch")})
        self.assertEqual(order, ["ours", "torch", "torch", "ours"])
        self.assertEqual(found, {"": [1.0, 1.0], "torch": [1.0, 1.0]})


if __name__ == "__main__":
    unittest.main()
