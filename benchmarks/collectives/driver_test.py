#!/usr/bin/env python3
"""The driver's arithmetic, its errors, and one real run. Environment: LOCKSTEP_BINARY_DIR for the last."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parent)]

import contest  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402

KEYS = ["op", "dtype", "ranks", "bytes", "buffer", "lockstep_us", "peer", "peer_us", "ratio", "ratio_low",
        "ratio_high", "limit_us"]


def shell(text):
    return contest.Contestant("fake", ["/bin/sh", "-c", text, "sh"], {}, [], ["private"])


def bench(*arguments, **environment):
    return subprocess.run([here / "run", *arguments], capture_output=True, text=True, env={**os.environ, **environment})


class Rows(unittest.TestCase):
    def pair(self, arena, limit=1.0):
        return {("f32", 16, "arena"): arena, ("f32", 16, "limit"): limit}

    def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians(self):
        ours = [self.pair(1.0), self.pair(2.0), self.pair(4.0)]
        theirs = [{("f32", 16, "private"): us} for us in (8.0, 2.0, 12.0)]
        made = report.row("all_reduce", "f32", 2, 16, "arena", ours, "openmpi", theirs)
        self.assertEqual(made["ratio"], 3.0)
        self.assertEqual((made["ratio_low"], made["ratio_high"]), (2.0, 5.5))
        self.assertEqual((made["lockstep_us"], made["peer_us"], made["bytes"]), (2.0, 8.0, 64))
        self.assertEqual(made["of_limit"], 0.5)
        self.assertEqual(list(made)[: len(KEYS)], KEYS)

    def test_without_a_peer_its_columns_are_null(self):
        made = report.row("all_reduce", "f32", 2, 16, "arena", [self.pair(1.0)], None, None)
        self.assertIsNone(made["peer"])
        self.assertIsNone(made["ratio"])
        self.assertIn("-", report.table([made], {}))


class Programs(unittest.TestCase):
    def run_with(self, contestant, timeout=60):
        with contest.Session(2, 64) as session:
            return contestant.run(session, {"ranks": 2}, timeout)

    def test_reports_are_found_among_other_output(self):
        self.assertEqual(self.run_with(shell("echo hello; echo '{\"us\": 1.5}'")), [{"us": 1.5}])

    def test_a_failing_program_is_named_with_its_last_words(self):
        with self.assertRaisesRegex(peers.Failure, "(?s)fake: exit code 3.*rank 1 is gone"):
            self.run_with(shell("echo rank 1 is gone >&2; exit 3"))

    def test_a_program_that_hangs_is_ended(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(peers.Failure, "not done after 1 s"):
            self.run_with(shell("exec sleep 60"), timeout=1)
        self.assertLess(time.monotonic() - begin, 30)

    def test_pairs_alternate_who_is_first(self):
        order = []

        class Fake:
            def __init__(self, name):
                self.name = name

            def run(self, *_):
                order.append(self.name)

        contest.in_pairs([Fake("a"), Fake("b")], 3, None, {}, 1, lambda pair: None)
        self.assertEqual(order, ["a", "b", "b", "a", "a", "b"])


class Usage(unittest.TestCase):
    def test_wrong_arguments_are_named(self):
        for arguments, complaint in (
            (["--frob"], "--frob"), (["--sizes", "3"], "'3' is no size"), (["--sizes", "64Q"], "'64Q' is no size"),
            (["--ranks", "1"], "'1' is no whole number from 2"), (["--dtype", "f99"], "known are f32, bf16"),
            (["--peer", "nobody"], "'nobody' is unknown"), (["--json", "/nonexistent/rows.json"], "cannot write"),
        ):
            result = bench(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(complaint, result.stderr)

    def test_a_peer_that_was_asked_for_must_be_installed(self):
        with tempfile.TemporaryDirectory() as empty:
            result = bench("--peer", "openmpi", LOCKSTEP_DEPS=empty)
        self.assertEqual(result.returncode, 1)
        self.assertIn("script/bootstrap --peers openmpi", result.stderr)


@unittest.skipUnless("LOCKSTEP_BINARY_DIR" in os.environ, "LOCKSTEP_BINARY_DIR says where Lockstep is built")
class RealRun(unittest.TestCase):
    def test_rows_are_complete(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            result = bench("--build", os.environ["LOCKSTEP_BINARY_DIR"], "--json", file, "--pairs", "1", "--sizes",
                           "4,64KiB", "--ranks", "2,3", LOCKSTEP_DEPS=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("script/bootstrap --peers openmpi", result.stderr)
            rows = json.loads(file.read_text())["rows"]
        self.assertEqual(len(rows), 2 * 2 * 2 * 2)  # ranks, dtypes, buffers, sizes
        for row in rows:
            self.assertEqual(list(row)[: len(KEYS)], KEYS)
            self.assertGreater(row["lockstep_us"], 0)
            self.assertGreater(row["limit_us"], 0)


if __name__ == "__main__":
    unittest.main()
