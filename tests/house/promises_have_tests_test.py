#!/usr/bin/env python3
"""The checker must refuse what it is for."""
import pathlib
import tempfile
import unittest

from promises_have_tests import check

TABLE = "# Page\n\n| promise | held by |\n| --- | --- |\n"
FILES = {
    "lockstep/a_test.cpp": "TEST(Ring, Works) {}\nTEST_P(Every,\n       Algorithm) {}\n",
    "tests/soak/CMakeLists.txt": "foreach(victim Named Sharded)\nadd_test(NAME Soak.KillOf${victim} COMMAND x)\n"
                                 "add_test(NAME Soak.Plain COMMAND x)\n",
    "tests/soak/kill": 'add("--only", choices=("hosts",))\n',
}


class Promises(unittest.TestCase):
    def problems(self, row, page="docs/errors.md"):
        with tempfile.TemporaryDirectory() as folder:
            pages = {name: TABLE + "| a | `Ring.Works` |\n" for name in ("docs/guarantees.md", "docs/errors.md")}
            for name, text in {**FILES, **pages, page: TABLE + row + "\n"}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check(folder)

    def test_tests_that_are_there_are_found(self):
        names = "`Ring.Works`, `Every.Algorithm`, `Ring.*`, `Soak.Plain`, `Soak.KillOfSharded`, `script/soak kill --only hosts`"
        self.assertEqual(self.problems(f"| a | {names} |"), [])

    def test_a_promise_without_a_test_is_refused_on_both_pages(self):
        for page in ("docs/guarantees.md", "docs/errors.md"):
            self.assertIn(f"{page}:5: 'a' ends with no list", self.problems("| a | |", page)[0])

    def test_words_are_no_tests(self):
        for cell in ("checked", "`Ring.Works` and others", "see `Ring.Works`", "`Ring.Works`, ThreadSanitizer"):
            self.assertIn("ends with no list", self.problems(f"| a | {cell} |")[0])

    def test_names_that_are_nowhere_are_refused(self):
        for name in ("Ring", "Ring.Work", "Rin.*", "Ring.W*", "Soak.KillOf", "Soak.KillOfOthers", "tests/fault"):
            self.assertIn("there is no test" if ".*" not in name else "there is no suite",
                          self.problems(f"| a | `Ring.Works`, `{name}` |")[0])

    def test_soaks_and_their_options_have_to_be_there(self):
        self.assertIn("no soak saves", self.problems("| a | `script/soak saves` |")[0])
        self.assertIn("knows no init", self.problems("| a | `script/soak kill --only init` |")[0])

    def test_paragraphs_below_a_heading_are_promises(self):
        row = "| a | `Ring.Works` |\n\n## More\n\n"
        self.assertEqual(self.problems(row + "It holds,\nalways. Held by `Ring.Works`,\n`Ring.*`."), [])
        self.assertIn("ends with no list", self.problems(row + "It holds.")[0])
        self.assertIn("no test Ring.No", self.problems(row + "It holds. Held by `Ring.No`.")[0])

    def test_a_page_of_nothing_is_refused(self):
        self.assertIn("there is no promise", self.problems("")[0])


if __name__ == "__main__":
    unittest.main()
