#!/usr/bin/env python3
"""script/bench hosts: its arithmetic, and a look in seconds, with real hosts where they can be made."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        class Link:
            link, count = "10g", 2

        class Arguments:
            each = 1

        def pair(ours, exchange, theirs):
            return {("f32", 256, "private"): ours, ("f32", 256, "exchange"): exchange}, {("f32", 256, "private"): theirs}

        rounds = [pair(10.0, 8.0, 20.0), pair(20.0, 15.0, 20.0), pair(40.0, 40.0, 120.0)]
        pairs = {"lockstep": [ours for ours, _ in rounds], "mpich": [theirs for _, theirs in rounds]}
        row = run.row_of("all_reduce", Arguments, Link, 256, "private", pairs, {"lockstep": 1024.4})
        self.assertEqual((row["bytes"], row["lockstep_us"], row["of_exchange"]), (1024, 20.0, 0.8))
        self.assertEqual(row["peers"], {"mpich": {"us": 20.0, "ratio": 2.0}})
        self.assertEqual(row["sent_bytes"], {"lockstep": 1024})


class Hosts(unittest.TestCase):
    def test_measures_between_hosts_and_counts_what_crosses(self):
        drivers.require_hosts(self, "veth")
        made = drivers.measured(__file__, ["--peer", "none", "--pairs", "1", "--link", "veth", "--sizes", "64,1MiB"])
        self.assertEqual([(row["bytes"], row["buffer"]) for row in made["rows"]],
                         [(64, "private"), (64, "arena"), (1 << 20, "private"), (1 << 20, "arena")])
        self.assertTrue(all(row["lockstep_us"] > 0 and row["exchange_us"] > 0 for row in made["rows"]))
        self.assertAlmostEqual(made["rows"][-1]["sent_bytes"]["lockstep"] / (1 << 20), 1, delta=0.15)
        self.assertEqual(made["links"][0]["mtu"], 1500)


if __name__ == "__main__":
    unittest.main()
