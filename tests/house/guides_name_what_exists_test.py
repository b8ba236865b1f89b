#!/usr/bin/env python3
"""The checker must refuse what it is for."""
import pathlib
import tempfile
import unittest

from guides_name_what_exists import GUIDES, check

TABLE = "# Page\n\n| Theirs | Lockstep | |\n| --- | --- | --- |\n"
ROW = "| `a` | `Group` | |\n"
FILES = {
    "cmake/PublicHeaders.cmake": "set(lockstep_public_headers\n    lockstep/group.h)\n",
    "lockstep/group.h": "// not said\nclass Group { int rank(); };\nvoid all_reduce(Group group, float* data);\n"
                        "struct Options { float prescale; };\nenum class Op { sum };\nint only(\"text\");\n",
    "docs/environment.md": "| `LOCKSTEP_TIMEOUT` | 300s |\n",
    "lockstep/launch/run.cpp": '{"--prefix", "-np"}',
}


class Guides(unittest.TestCase):
    def problems(self, row, before=""):
        with tempfile.TemporaryDirectory() as folder:
            pages = {page: TABLE + ROW for page in GUIDES}
            for name, text in {**FILES, **pages, GUIDES[0]: before + TABLE + ROW + row + "\n"}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check(folder)

    def assert_unknown(self, name, row, before=""):
        problems = self.problems(row, before)
        self.assertEqual(len(problems), 1, problems)
        self.assertTrue(problems[0].endswith(f"there is no {name}"), problems)

    def test_what_is_there_is_found(self):
        for code in ("Group::rank()", "all_reduce(world, x).rank()", "Op::sum", "{.prescale = 2}", "LOCKSTEP_TIMEOUT",
                     "lockstep run -np 4 -- ./train --anything", "--prefix", "torch::nn::Embedding::from(x)", "net->to(x)"):
            self.assertEqual(self.problems(f"| `theirs` | `{code}` | `anything` |"), [], code)

    def test_what_is_nowhere_is_named(self):
        for name, code in (("reduce", "reduce(group)"), ("size", "Group::size()"), ("World", "World"),
                           ("postscale", "{.postscale = 2}"), ("LOCKSTEP_TIME", "LOCKSTEP_TIME"),
                           ("--quiet", "lockstep run --quiet"), ("wait", "all_reduce(world, x).wait()")):
            self.assert_unknown(name, f"| `theirs` | `{code}` | |")

    def test_comments_and_texts_of_headers_are_no_names(self):
        self.assert_unknown("said", "| a | `said` | |")
        self.assert_unknown("text", "| a | `text` | |")

    def test_the_same_is_a_name_of_ours(self):
        self.assertEqual(self.problems("| `prescale` | the same | |"), [])
        self.assert_unknown("postscale", "| `postscale` | the same | |")

    def test_what_there_is_not_may_name_anything(self):
        self.assertEqual(self.problems("| `postscale` | no such: `postscale` | |"), [])

    def test_examples_are_read_too(self):
        example = "```cpp\nlockstep::Group world;\nconst auto it = lockstep::{}(world);\n```\n"
        self.assertEqual(self.problems("| a | `it(x)` | |", example.format("all_reduce")), [])
        self.assert_unknown("reduce", "", example.format("reduce"))

    def test_a_page_of_nothing_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**FILES, **{page: "# Page\n" for page in GUIDES}}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self.assertEqual(len(check(folder)), len(GUIDES))


if __name__ == "__main__":
    unittest.main()
