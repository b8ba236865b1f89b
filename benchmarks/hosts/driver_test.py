#!/usr/bin/env python3
"""script/bench hosts: its arithmetic, and a look in seconds, with real hosts where they can be made."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
folder = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(folder.parent))
import drivers  # noqa: E402

run = drivers.beside(__file__)
import hosts as made_hosts  # noqa: E402


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
        try:
            made_hosts.Hosts(2, "veth").close()
        except (made_hosts.NotPossible, OSError) as error:
            self.skipTest(str(error))
        build = os.environ["LOCKSTEP_BINARY_DIR"]
        with tempfile.TemporaryDirectory() as place:
            out = pathlib.Path(place) / "out.json"
            subprocess.run([folder / "run", "--build", build, "--peer", "none", "--pairs", "1", "--link", "veth", "--sizes",
                            "64,1MiB", "--json", out], check=True, stdout=subprocess.DEVNULL)
            made = json.loads(out.read_text())
        self.assertEqual([(row["bytes"], row["buffer"]) for row in made["rows"]],
                         [(64, "private"), (64, "arena"), (1 << 20, "private"), (1 << 20, "arena")])
        self.assertTrue(all(row["lockstep_us"] > 0 and row["exchange_us"] > 0 for row in made["rows"]))
        self.assertAlmostEqual(made["rows"][-1]["sent_bytes"]["lockstep"] / (1 << 20), 1, delta=0.15)
        self.assertEqual(made["links"][0]["mtu"], 1500)


if __name__ == "__main__":
    unittest.main()
