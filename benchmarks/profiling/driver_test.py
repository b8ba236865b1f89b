#!/usr/bin/env python3
"""The arithmetic of script/bench profiling."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_shares_are_of_the_same_program_in_the_same_round(self):
        rates = {("ddp", "bare"): [100.0, 200.0, 50.0], ("ddp", "profile"): [99.0, 180.0, 50.0],
                 ("horovod", "bare"): [10.0, 10.0, 10.0], ("horovod", "timeline"): [9.0, 8.0, 9.5]}
        shares = {(row["program"], row["way"]): row["share"]["median"] for row in run.rows_of("mlp", rates)}
        self.assertEqual(shares, {("ddp", "bare"): 1.0, ("ddp", "profile"): 0.99,
                                  ("horovod", "bare"): 1.0, ("horovod", "timeline"): 0.9})


if __name__ == "__main__":
    unittest.main()
