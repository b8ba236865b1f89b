#!/usr/bin/env python3
"""What may be published, and what a published figure says of itself."""
import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import peers  # noqa: E402
import results  # noqa: E402

COMMIT = {"commit": "0123456789abcdef", "date": "2026-11-24"}


def content(foreign_cores):
    return {"benchmark": "engine", "machine": {"foreign_cores": foreign_cores}, "settings": {"pairs": 5}, "rows": [1]}


class Publishing(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.tables = mock.patch.object(results.subprocess, "run", return_value=mock.Mock(returncode=0))
        for patch in (mock.patch.object(results, "folder", self.folder / "results"), self.tables):
            patch.start()
            self.addCleanup(patch.stop)

    def parse(self, *words):
        parser = argparse.ArgumentParser()
        results.add_arguments(parser, "engine")
        arguments = parser.parse_args(words)
        results.require_arguments(parser, arguments)
        return arguments

    def test_keeps_commit_date_machine_and_settings_and_has_the_tables_written(self):
        results.keep(self.parse("--publish"), COMMIT, content(0.02))
        made = json.loads((self.folder / "results/engine.json").read_text())
        self.assertEqual(made, {**COMMIT, **content(0.02)})
        self.assertIn("readme_tables.py", str(results.subprocess.run.call_args[0][0][-1]))

    def test_is_refused_on_a_busy_machine(self):
        with self.assertRaisesRegex(peers.Failure, "other processes used 0.30 cores"):
            results.keep(self.parse("--publish", "--json", str(self.folder / "rows.json")), COMMIT, content(0.3))
        self.assertFalse((self.folder / "results").exists())
        self.assertTrue((self.folder / "rows.json").exists())  # they are not lost

    def test_says_so_where_the_tables_could_not_be_written(self):
        results.subprocess.run.return_value.returncode = 1
        with self.assertRaisesRegex(peers.Failure, "engine.json is written, but not README's tables"):
            results.keep(self.parse("--publish"), COMMIT, content(0))

    def test_wants_a_commit_that_has_what_is_measured(self):
        with mock.patch.object(results, "git", side_effect=["0123456789abcdef", " M lockstep/lockstep.h"]):
            with self.assertRaisesRegex(peers.Failure, "the tree has changes that no commit has"):
                results.commit_to_publish(self.parse("--publish"))

    def test_figures_of_a_changed_tree_name_no_commit(self):
        with mock.patch.object(results, "git", side_effect=["0123456789abcdef", " M lockstep/lockstep.h"]):
            self.assertIsNone(results.commit_to_publish(self.parse())["commit"])
        with mock.patch.object(results, "git", side_effect=["0123456789abcdef", ""]):
            self.assertEqual(results.commit_to_publish(self.parse())["commit"], "0123456789abcdef")

    def test_a_file_that_cannot_be_written_is_said_before_measuring(self):
        said = io.StringIO()
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
            self.parse("--json", "/nonexistent/rows.json")
        self.assertIn("cannot write /nonexistent/rows.json", said.getvalue())


if __name__ == "__main__":
    unittest.main()
