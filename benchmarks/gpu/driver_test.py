#!/usr/bin/env python3
"""The arithmetic of script/bench gpu, and a short run of it over the stand-ins of CUDA's driver and NCCL (tests/gpu)."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import drivers  # noqa: E402

run = drivers.beside(__file__)


class Rows(unittest.TestCase):
    def test_a_ratio_is_the_others_time_and_the_share_that_of_a_copys_bandwidth(self):
        key = ("all_reduce", 1 << 20)
        found = {"lockstep": {key: {"one_us": 20.0, "at_once_us": 10.0}}, "copy": {key: {"one_us": 5.0, "at_once_us": 4.0}},
                 "torch_gloo": {key: {"one_us": 100.0, "at_once_us": 90.0}}}
        row, = run.rows_of(2, found)
        self.assertEqual(row["of_copy"], 0.8)  # two ranks read and write twice what a copy does, in 2.5 times its time
        self.assertEqual((row["others"]["torch_gloo"]["one"], row["others"]["torch_gloo"]["at_once"]), (5.0, 9.0))

    def test_what_a_peer_has_not_is_missing(self):
        key = ("broadcast", 4)
        row, = run.rows_of(2, {"lockstep": {key: {"one_us": 2.0, "at_once_us": 1.0}}, "nccl": {}})
        self.assertEqual((row["of_copy"], row["others"]), (None, {}))


class Run(unittest.TestCase):
    def setUp(self):
        standin = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "standin"
        if not (standin / "libcuda.so.1").exists():
            self.skipTest("this build has no stand-in of CUDA's driver")
        os.environ.update(LD_LIBRARY_PATH=str(standin), STANDIN_KERNELS="1", LOCKSTEP_NCCL_LIBRARY=str(standin / "libnccl.so.2"),
                          STANDIN_NCCL_DIR=os.environ.get("TMPDIR", "/tmp"))

    def test_ranks_share_a_gpu_or_have_one_each(self):
        short = ["--rounds", "1", "--sizes", "4,1048576", "--training", "none"]
        os.environ["STANDIN_ONE_GPU"] = "1"
        shared = drivers.measured(__file__, [*short, "--device", "cuda:0"])["rows"]
        self.assertEqual({row["op"] for row in shared}, set(run.OPERATIONS))
        self.assertEqual([row["of_copy"] is None for row in shared[:2]], [True, False])
        del os.environ["STANDIN_ONE_GPU"]
        apart = drivers.measured(__file__, [*short, "--device", "cuda"])["rows"]
        self.assertTrue(all(row["others"]["nccl"]["one"] > 0 for row in apart))

    def test_without_a_gpu_it_says_so(self):
        os.environ["LD_LIBRARY_PATH"] = "/nowhere"
        ended = subprocess.run([pathlib.Path(__file__).parent / "run", "--build", os.environ["LOCKSTEP_BINARY_DIR"], "--training", "none"],
                               capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("libcuda.so.1", ended.stderr)


if __name__ == "__main__":
    unittest.main()
