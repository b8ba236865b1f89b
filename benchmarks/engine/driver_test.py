#!/usr/bin/env python3
"""The arithmetic of script/bench engine."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)

CASE = ("one after the other", 64)


class Rows(unittest.TestCase):
    def test_each_cycle_has_a_row_and_the_fastest_is_the_best(self):
        found = {"lockstep": [{CASE: 2.0}, {CASE: 4.0}], "horovod 1": [{CASE: 1000.0}, {CASE: 1200.0}],
                 "horovod 0.1": [{CASE: 100.0}, {CASE: 120.0}]}
        made = list(run.rows_of(2, found))
        self.assertEqual([(row["cycle_ms"], row["best"]) for row in made], [(1, False), (0.1, True)])
        self.assertEqual((made[1]["ratio"], made[1]["peer_value"], made[1]["lockstep"]), (40.0, 110.0, 3.0))

    def test_without_horovod_its_columns_are_null(self):
        row, = run.rows_of(2, {"lockstep": [{CASE: 2.0}]})
        self.assertEqual((row["peer"], row["ratio"], row["best"], row["lockstep"]), (None, None, False, 2.0))

    def test_what_horovod_does_not_measure_has_no_peer(self):
        row, = run.rows_of(2, {"lockstep": [{("calls of many", 0): 8.0}], "horovod 1": [{CASE: 5.0}]})
        self.assertIsNone(row["peer"])


if __name__ == "__main__":
    unittest.main()
