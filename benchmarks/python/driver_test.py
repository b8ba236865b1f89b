#!/usr/bin/env python3
"""The rows of script/bench python, and a real run of it where torch is installed. Environment: LOCKSTEP_BINARY_DIR, LOCKSTEP_PEERS."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_they_have_microseconds_and_the_ratio_of_pairs(self):
        columns = {"op": "all_reduce", "model": "", "bytes": 64}
        row, = run.rows_of("torch", columns, {"": [1e-6, 2e-6, 4e-6], "horovod": [2e-6, 2e-6, 12e-6]})
        self.assertEqual(row, {"op": "all_reduce", "framework": "torch", "model": "", "ranks": 2, "bytes": 64, "lockstep_us": 2.0,
                               "peer": "horovod", "peer_us": 2.0, "ratio": 2.0, "ratio_low": 1.5, "ratio_high": 2.5, "pairs": 3})

    def test_a_limit_takes_part_as_a_peer(self):
        found = run.turns.measure(2, run.Limit(1e-5), {"limit": run.Limit(4e-5)})
        self.assertEqual(next(run.rows_of("tensorflow", {"op": "all_reduce", "model": "eager", "bytes": 4096}, found))["ratio"], 4.0)


class RealRun(unittest.TestCase):
    def test_torch_over_lockstep_and_over_gloo(self):
        if run.peers.home_of_package("torch") is None:
            self.skipTest("torch is not installed: script/bootstrap --peers torch")
        made = drivers.measured(__file__, ["--only", "c10d", "--pairs", "1", "--steps", "1", "--models", "convnet", "--sizes", "64"])
        self.assertEqual([(row["op"], row["framework"], row["peer"]) for row in made["rows"]],
                         [("all_reduce", "c10d", "gloo"), ("training", "c10d", "gloo"), ("training", "c10d", "nothing"),
                          ("training", "c10d", "registered")])
        for row in made["rows"]:
            self.assertGreater(row["lockstep_us"], 0)


if __name__ == "__main__":
    unittest.main()
