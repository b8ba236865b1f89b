#!/usr/bin/env python3
"""The arithmetic of script/bench start."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        ours, other = run.rows_of({"lockstep": [10.0, 20.0, 30.0], "MPI": [20.0, 20.0, 90.0]})
        self.assertEqual((ours["ms"], ours["ratio"]), (20.0, 1.0))
        self.assertEqual((other["ms"], other["low_ms"], other["ratio"]), (20.0, 20.0, 2.0))


if __name__ == "__main__":
    unittest.main()
