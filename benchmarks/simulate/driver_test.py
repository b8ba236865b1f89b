#!/usr/bin/env python3
"""script/bench simulate: its arithmetic, and a look in seconds, with real hosts where they can be made."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Agreement(unittest.TestCase):
    def test_counts_both_ways_off(self):
        rows = [{"bytes": size, "of_real": ratio}
                for size, ratio in [(1 << 20, 1.2), (1 << 20, 1.21), (1 << 20, 0.84), (1 << 20, 0.83), (64, 2), (64, 0.5), (64, 2.1)]]
        self.assertEqual(run.summary(rows),
                         "from 256 KiB on 2 of 4 within 20 %; below 2 of 3 within a factor of 2")

    def test_a_message_takes_what_was_measured(self):
        for is_crowded in (False, True):
            network = run.topology(9, is_crowded)["network"]
            self.assertAlmostEqual(network["latency_us"] + 2 * network["message_us"], 9)
            self.assertGreater(network["latency_us"], 0)


class Hosts(unittest.TestCase):
    def test_puts_simulated_times_beside_real_ones(self):
        drivers.require_hosts(self, "1g")
        rows = drivers.measured(__file__, ["--pairs", "1", "--hosts", "2", "--op", "all_gather", "--sizes", "1MiB"])["rows"]
        self.assertEqual([(row["algorithm"], row["bytes"]) for row in rows],
                         [("ring", 1 << 20), ("bruck", 1 << 20), ("hierarchical", 1 << 20)])
        self.assertTrue(all(row["real_us"] > 0 and row["simulated_us"] > 0 for row in rows))


if __name__ == "__main__":
    unittest.main()
