#!/usr/bin/env python3
"""The driver's arithmetic, its errors, and real runs. Environment: LOCKSTEP_BINARY_DIR for the last."""
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
from operations import OPERATIONS, size_of  # noqa: E402

KEYS = ["op", "dtype", "ranks", "bytes", "buffer", "lockstep_us", "peer", "peer_us", "ratio", "ratio_low",
        "ratio_high", "kernel_us", "triad_us"]
HUNG = contest.Unfinished("it hung", [], hung=True)
CRASHED = contest.Unfinished("it crashed", [], hung=False)


def shell(text):
    return contest.Contestant("fake", ["/bin/sh", "-c", text, "sh"], {}, [], ["private"])


def bench(*arguments, **environment):
    return subprocess.run([here / "run", *arguments], capture_output=True, text=True, env={**os.environ, **environment})


def beside(kernel=1.0, triad=1.0, streamed=2.0):
    return {("f32", 16, "kernel"): kernel, ("f32", 16, "triad"): triad, ("f32", 16, "streamed_triad"): streamed}


def ours(*times, **others):
    """Lockstep's, by pair."""
    return [{("f32", 16, "arena"): us, **beside(**others)} for us in times]


def peer(name, *times, ending=None):
    """A peer's; None where it did not finish."""
    return report.Peer(name, [{("f32", 16, "private"): us} if us else {} for us in times], ending)


def rows(ours, *peers):
    return report.rows("all_reduce", "f32", 2, 16, "arena", ours, peers)


class Rows(unittest.TestCase):
    def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians(self):
        made, = rows(ours(1.0, 2.0, 4.0), peer("openmpi", 8.0, 2.0, 12.0))
        self.assertEqual(made["ratio"], 3.0)
        self.assertEqual((made["ratio_low"], made["ratio_high"]), (2.0, 5.5))
        self.assertEqual((made["lockstep_us"], made["peer_us"], made["bytes"]), (2.0, 8.0, 64))
        self.assertEqual(made["of_kernel"], 0.5)
        self.assertEqual(list(made)[: len(KEYS)], KEYS)

    def test_the_triad_is_the_faster_of_its_forms(self):
        self.assertEqual(rows(ours(6.0, triad=5.0, streamed=3.0))[0]["of_triad"], 0.5)
        self.assertEqual(rows(ours(6.0, triad=3.0, streamed=5.0))[0]["of_triad"], 0.5)

    def test_without_a_peer_its_columns_are_null(self):
        made, = rows(ours(1.0))
        self.assertIsNone(made["peer"])
        self.assertIsNone(made["ratio"])
        self.assertFalse(made["best"])
        self.assertIn("-", report.table([made], {}))

    def test_the_best_peer_is_the_one_with_the_lowest_median_and_the_table_shows_it_alone(self):
        made = rows(ours(1.0, 1.0, 1.0), peer("a", 5.0, 5.0, 5.0), peer("b", 1.0, 4.0, 9.0), peer("c", 6.0, 6.0, 6.0))
        self.assertEqual([(row["peer"], row["best"]) for row in made], [("a", False), ("b", True), ("c", False)])
        text = report.table(made, {"a": "Peer A", "b": "Peer B", "c": "Peer C"})
        self.assertIn("Peer B", text)
        self.assertNotIn("Peer A", text)
        self.assertEqual(len(text.splitlines()), 2)

    def test_who_did_not_finish_has_no_figures_and_is_not_the_best(self):
        made = rows(ours(1.0, 1.0), peer("a", 2.0, None, ending=HUNG), peer("b", 5.0, 5.0))
        self.assertEqual((made[0]["outcome"], made[0]["peer_us"], made[0]["ratio"]), ("did not finish", None, None))
        self.assertEqual((made[1]["outcome"], made[1]["best"]), ("finished", True))
        text = report.table(made, {"a": "Peer A", "b": "Peer B"})
        self.assertIn("Peer A did not finish: f32 64 B", text)

    def test_a_crash_is_no_slowness(self):
        made, = rows(ours(1.0), peer("a", None, ending=CRASHED))
        self.assertEqual((made["outcome"], made["best"]), ("failed", False))
        self.assertIn("Peer A failed: f32 64 B", report.table([made], {"a": "Peer A"}))

    def test_what_lockstep_cannot_do_yet_still_has_a_best_peer(self):
        made = rows([beside()], peer("a", 5.0), peer("b", 4.0))
        self.assertEqual([row["best"] for row in made], [False, True])
        self.assertEqual({row["lockstep_us"] for row in made} | {row["of_triad"] for row in made}, {None})
        self.assertIn("Peer B", report.table(made, {"a": "Peer A", "b": "Peer B"}))


class Sizes(unittest.TestCase):
    def test_are_rounded_down_to_equal_parts_and_never_to_nothing(self):
        self.assertEqual(OPERATIONS["all_gather"].elements([4, 40, 64 << 10], 3), [3, 9, 16383])
        self.assertEqual(OPERATIONS["all_reduce"].elements([4, 40], 3), [1, 10])

    def test_that_become_the_same_are_measured_once(self):
        self.assertEqual(OPERATIONS["all_to_all"].elements([4, 8, 16], 4), [4])

    def test_have_units(self):
        self.assertEqual([size_of(text) for text in ("4", "64KiB", "25 MiB", "1G")], [4, 65536, 25 << 20, 1 << 30])


class Programs(unittest.TestCase):
    def run_with(self, contestant, timeout=60):
        with contest.Session(2, 64) as session:
            return contestant.run(session, {"ranks": 2}, timeout)

    def test_reports_are_found_among_other_output(self):
        self.assertEqual(self.run_with(shell("echo hello; echo '{\"us\": 1.5}'")), [{"us": 1.5}])

    def test_a_failing_program_is_named_with_its_last_words(self):
        with self.assertRaisesRegex(peers.Failure, "(?s)fake: exit code 3.*rank 1 is gone"):
            self.run_with(shell("echo rank 1 is gone >&2; exit 3"))

    def test_a_program_that_hangs_is_ended_and_what_it_reported_before_is_kept(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(contest.Unfinished, "not done after 5 s") as raised:
            self.run_with(shell("echo '{\"us\": 1.5}'; echo '{\"us\": '; exec sleep 60"), timeout=5)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(raised.exception.hung)
        self.assertEqual(raised.exception.reports, [{"us": 1.5}])

    def test_nothing_of_a_program_that_hangs_stays_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "stray"
            # A rank that its launcher does not end: it has a session of its own, and ignores SIGTERM.
            text = f"setsid sh -c 'trap \"\" TERM; echo $$ > {file}; while :; do sleep 1; done' & exec sleep 60"
            begin = time.monotonic()
            with self.assertRaises(contest.Unfinished):
                self.run_with(shell(text), timeout=5)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertFalse(pathlib.Path("/proc", file.read_text().strip()).exists())


class Fake:
    """A contestant that does all cases of {"cases": ...}, or raises what `endings` has for its next run."""

    def __init__(self, name, log, endings=(), may_fail=True):
        self.name = name
        self.may_fail = may_fail
        self.log = log
        self.endings = list(endings)

    def run(self, session, work, timeout):
        self.log.append((self.name, work.get("cases")))
        ending = self.endings.pop(0) if self.endings else None
        if ending:
            raise ending
        return [{}] * work.get("cases", 3)


class Pairs(unittest.TestCase):
    def run_pairs(self, *contestants, pairs=3):
        return contest.in_pairs(contestants, pairs, None, {}, 1, lambda pair: None)

    def test_alternate_who_is_first(self):
        log = []
        self.run_pairs(Fake("a", log), Fake("b", log))
        self.assertEqual([name for name, _ in log], ["a", "b", "b", "a", "a", "b"])

    def test_go_on_without_what_a_peer_did_not_finish(self):
        log = []
        hung = contest.Unfinished("a: not done", [{}, {}], hung=True)
        results, unfinished = self.run_pairs(Fake("a", log, [None, hung]), Fake("b", log))
        self.assertEqual([cases for name, cases in log if name == "a"], [None, None, 2])
        self.assertEqual([len(reports) for reports in results["a"]], [3, 2, 2])
        self.assertEqual([len(reports) for reports in results["b"]], [3, 3, 3])
        self.assertEqual(unfinished, {"a": hung})

    def test_do_not_start_a_peer_again_that_finished_nothing(self):
        log = []
        results, _ = self.run_pairs(Fake("a", log, [HUNG]))
        self.assertEqual(len(log), 1)
        self.assertEqual(results["a"], [[], [], []])

    def test_end_when_lockstep_fails(self):
        with self.assertRaises(contest.Unfinished):
            self.run_pairs(Fake("lockstep", [], [HUNG], may_fail=False))


class Usage(unittest.TestCase):
    def test_wrong_arguments_are_named(self):
        for arguments, complaint in (
            (["--frob"], "--frob"), (["--sizes", "3"], "'3' is no size"), (["--sizes", "64Q"], "'64Q' is no size"),
            (["--ranks", "1"], "'1' is no whole number from 2"), (["--dtype", "f99"], "known are f32, bf16"),
            (["--op", "all_reduce,gossip"], "'gossip' is unknown; known are all_reduce, reduce_scatter, all_gather"),
            (["--peer", "nobody"], "'nobody' is unknown"), (["--json", "/nonexistent/rows.json"], "cannot write"),
        ):
            result = bench(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(complaint, result.stderr)

    def test_a_peer_that_was_asked_for_must_be_installed(self):
        for name, package in (("openmpi", "openmpi"), ("gloo", "torch")):
            with tempfile.TemporaryDirectory() as empty:
                result = bench("--peer", name, LOCKSTEP_DEPS=empty)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"script/bootstrap --peers {package}", result.stderr)


@unittest.skipUnless("LOCKSTEP_BINARY_DIR" in os.environ, "LOCKSTEP_BINARY_DIR says where Lockstep is built")
class RealRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "rows.json"
        # Lockstep's programs as they are built, and room for those of fake peers.
        self.build = self.folder / "build"
        self.build.mkdir()
        (self.build / "bin").symlink_to(pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "bin")

    def bench(self, *arguments):
        return bench("--build", self.build, "--json", self.file, "--pairs", "1", *arguments, LOCKSTEP_DEPS=self.folder)

    def rows(self):
        return json.loads(self.file.read_text())["rows"]

    def test_rows_are_complete(self):
        result = self.bench("--op", "all_reduce", "--sizes", "4,64KiB", "--ranks", "2,3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("script/bootstrap --peers", result.stderr)
        made = json.loads(self.file.read_text())
        self.assertEqual(set(made["settings"]["huge_pages"]["all_reduce"]), {"private", "arena", "registered", "kernel"})
        self.assertIn("process_vm_readv", made["machine"])
        self.assertEqual(len(self.rows()), 2 * 2 * 3 * 2)  # ranks, dtypes, buffers, sizes
        for row in self.rows():
            self.assertEqual(list(row)[: len(KEYS)], KEYS)
            self.assertGreater(row["lockstep_us"], 0)
            self.assertGreater(row["kernel_us"], 0)
            self.assertGreater(row["triad_us"], 0)

    def test_each_operation_is_measured_or_said_to_be_missing(self):
        result = self.bench("--op", ",".join(OPERATIONS), "--quick", "--sizes", "40", "--ranks", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        able = contest.lockstep_operations(self.build)
        for op in OPERATIONS:
            made = [row for row in self.rows() if row["op"] == op]
            self.assertEqual(len(made), 3 if op in able else 1, op)  # buffers
            self.assertEqual({row["lockstep_us"] is not None for row in made}, {op in able})
            self.assertEqual(f"lockstep cannot do {op} yet" in result.stdout, op not in able)

    def fake_mpich(self, mpiexec):
        programs = self.folder / "peers" / "mpich" / "bin"
        programs.mkdir(parents=True)
        compiler = 'while [ "$1" != -o ]; do shift; done; : > "$2"'
        for name, text in (("mpichversion", "echo Version: 9.9"), ("mpicxx", compiler), ("mpiexec", mpiexec)):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)

    def test_a_peer_that_hangs_is_cut_off_and_reported(self):
        self.fake_mpich("""echo '{"dtype": "f32", "elements": 1, "buffer": "private", "us": 7.5}'; exec sleep 600""")
        result = self.bench("--quick", "--peer", "mpich", "--sizes", "4,64", "--timeout", "20")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("mpich: not done after 20 s", result.stderr)
        self.assertIn("MPICH 9.9 did not finish: f32 64 B", result.stdout)
        found = {(row["bytes"], row["peer_us"], row["outcome"], row["best"]) for row in self.rows()}
        self.assertEqual(found, {(4, 7.5, "finished", True), (64, None, "did not finish", False)})
        self.assertTrue(all(row["lockstep_us"] > 0 for row in self.rows()))

    def test_a_peer_with_a_wrong_result_is_named_and_the_run_fails_at_its_end(self):
        self.fake_mpich("echo 'all_reduce of 1 f32: wrong result at element 0 on rank 1' >&2; exit 1")
        result = self.bench("--quick", "--peer", "mpich", "--sizes", "4")
        self.assertEqual(result.returncode, 1)
        self.assertIn("wrong result at element 0 on rank 1", result.stderr)
        self.assertIn("MPICH 9.9 failed: f32 4 B", result.stdout)
        self.assertEqual({row["outcome"] for row in self.rows()}, {"failed"})


if __name__ == "__main__":
    unittest.main()
