#!/usr/bin/env python3
"""Each peer that is installed does each operation, in each dtype, and its results are right. Environment:
LOCKSTEP_BINARY_DIR; LOCKSTEP_DEPS if peers are not where script/bootstrap puts them. Exit code 77: there are none."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parent)]

import peers  # noqa: E402
from operations import OPERATIONS  # noqa: E402

installed = [name for name in peers.known() if peers.home_of(name)]


class Peers(unittest.TestCase):
    def test_do_all_operations(self):
        expected = {(op, dtype, name) for op in OPERATIONS for dtype in ("f32", "bf16") for name in installed}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            words = ["--build", os.environ["LOCKSTEP_BINARY_DIR"], "--json", file, "--quick", "--pairs", "1", "--peer",
                     ",".join(installed), "--op", ",".join(OPERATIONS), "--dtype", "f32,bf16", "--sizes", "96"]
            result = subprocess.run([here / "run", *words], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(file.read_text())["rows"]
        finished = {(row["op"], row["dtype"], row["peer"]) for row in rows if row["outcome"] == "finished"}
        self.assertEqual(finished, expected, result.stderr)


if __name__ == "__main__":
    if not installed:
        sys.exit(77)
    unittest.main()
