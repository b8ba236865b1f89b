#!/usr/bin/env python3
"""The arithmetic of script/bench memory, and a short run of its own programs."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)
MIB = 1 << 20


class Rows(unittest.TestCase):
    def test_what_is_beyond_the_program_alone_is_a_share_of_what_the_model_needs(self):
        def reports(*resident):
            return [{"resident_bytes": each * MIB} for each in resident]

        row = run.row_of("mlp", 2, "ddp", reports(110, 900, 112), reports(100, 100, 101), 10 * MIB)
        self.assertEqual((row["resident_mib"], row["beyond_alone_mib"], row["own_mib"]), (112, 12, 60))
        self.assertAlmostEqual(row["overhead"], 0.2)


class Run(unittest.TestCase):
    def test_ranks_have_their_models_resident(self):
        rows = drivers.measured(__file__, ["--models", "mlp", "--ranks", "2", "--rounds", "1", "--steps", "2"])["rows"]
        self.assertEqual([(row["program"], row["ranks"]) for row in rows], [("ddp", 2), ("unconnected_heap", 2)])
        for row in rows:
            self.assertGreater(row["resident_mib"], row["own_mib"])  # libtorch is there, too


if __name__ == "__main__":
    unittest.main()
