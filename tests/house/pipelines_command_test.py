#!/usr/bin/env python3
"""The command line of `lockstep pipelines`. usage: pipelines_command_test.py LOCKSTEP"""
import re
import subprocess
import sys
import unittest

LOCKSTEP = sys.argv.pop()


def run(*arguments):
    return subprocess.run([LOCKSTEP, "pipelines", *arguments], capture_output=True, text=True, check=False)


def titles(text):
    return re.findall(r"^(\w+): .*\nrank 0", text, re.MULTILINE)


class Pipelines(unittest.TestCase):
    def test_all_are_drawn_on_four_ranks(self):
        text = run().stdout
        self.assertEqual(titles(text), ["naive", "gpipe", "1f1b", "interleaved"])
        self.assertEqual(text.count("\nrank 3"), 4)
        self.assertNotIn("\nrank 4", text)
        self.assertIn("F7", text)

    def test_a_shape_can_be_chosen(self):
        text = run("--ranks", "2", "--micro-batches", "3", "1f1b").stdout
        self.assertEqual(text, "1f1b: one backward for each forward: few activations\n"
                               "rank 0  F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
                               "rank 1  .. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n"
                               "bubble 25.0 %, at most 2 activations\n")
        self.assertIn("F0c", run("--stages-per-rank", "3", "interleaved").stdout)
        self.assertEqual(titles(run("--stages-per-rank", "3").stdout), ["naive", "gpipe", "1f1b", "interleaved"])

    def test_help_explains_the_signs(self):
        self.assertIn("B3 --   its backward, which takes twice as long", run("--help").stdout)

    def test_wrong_usage_is_answered_with_one_line_and_a_hint(self):
        for arguments, complaint in (
            (["2f2b"], 'there is no schedule "2f2b"; there are naive, gpipe, 1f1b, interleaved'),
            (["--ranks", "65"], '--ranks="65" is not a whole number from 1 to 64'),
            (["--micro-batches", "0"], '--micro-batches="0" is not a whole number from 1 to 1024'),
            (["--stages-per-rank", "2", "1f1b"], "1f1b has one stage on each rank"),
            (["--fast"], "--fast"),
        ):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn(complaint, result.stderr)
            self.assertTrue(result.stderr.startswith("lockstep pipelines: "))
            self.assertTrue(result.stderr.endswith("See `lockstep pipelines --help`.\n"))


if __name__ == "__main__":
    unittest.main()
