#!/usr/bin/env python3
"""The command line of `lockstep algorithms`. usage: algorithms_command_test.py LOCKSTEP"""
import re
import subprocess
import sys
import unittest

LOCKSTEP = sys.argv.pop()


def run(*arguments):
    return subprocess.run([LOCKSTEP, "algorithms", *arguments], capture_output=True, text=True, check=False)


def titles(text):
    return re.findall(r"^(\w+ \w+)\nrank 0", text, re.MULTILINE)


class Algorithms(unittest.TestCase):
    def test_all_are_drawn_on_four_ranks(self):
        text = run().stdout
        self.assertGreater(len(titles(text)), 40)
        self.assertEqual(text.count("\nrank 0"), text.count("\nrank 3"))
        self.assertNotIn("\nrank 4", text)

    def test_a_name_and_an_operation_choose(self):
        self.assertEqual({title.split()[0] for title in titles(run("ring").stdout)}, {"ring"})
        self.assertIn("ring all_reduce", titles(run("--operation", "all_reduce").stdout))
        self.assertEqual(titles(run("--operation", "all_reduce", "ring").stdout), ["ring all_reduce"])

    def test_the_number_of_ranks_can_be_chosen(self):
        self.assertIn("\nrank 7", run("--ranks", "8", "ring").stdout)

    def test_help_explains_the_signs(self):
        self.assertIn("<-1 c         has received c from rank 1", run("--help").stdout)

    def test_wrong_usage_is_answered_with_one_line_and_a_hint(self):
        for arguments, complaint in (
            (["circle"], "there is no algorithm circle; there are one_shot, "),
            (["--operation", "send"], "there is no algorithm for send; there are some for barrier, "),
            (["--operation", "barrier", "ring"], "ring does no barrier"),
            (["--ranks", "27"], '--ranks="27" is not a whole number from 1 to 26'),
            (["--ranks", "x"], '--ranks="x" is not a whole number'),
            (["--fast"], "--fast"),
            (["ring", "tree"], "tree"),
        ):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn(complaint, result.stderr)
            self.assertTrue(result.stderr.startswith("lockstep algorithms: "))
            self.assertTrue(result.stderr.endswith("See `lockstep algorithms --help`.\n"))


if __name__ == "__main__":
    unittest.main()
