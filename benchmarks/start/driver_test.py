#!/usr/bin/env python3
"""The arithmetic of script/bench start."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
file = pathlib.Path(__file__).resolve().parent / "run"
loader = importlib.machinery.SourceFileLoader("start_run", str(file))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("start_run", loader))
loader.exec_module(run)


class Rows(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        ours, other = run.rows_of({"lockstep": [10.0, 20.0, 30.0], "MPI": [20.0, 20.0, 90.0]})
        self.assertEqual((ours["ms"], ours["ratio"]), (20.0, 1.0))
        self.assertEqual((other["ms"], other["low_ms"], other["ratio"]), (20.0, 20.0, 2.0))


if __name__ == "__main__":
    unittest.main()
