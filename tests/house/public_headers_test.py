#!/usr/bin/env python3
"""The checker of public headers must refuse what it is for."""
import pathlib
import tempfile
import unittest

from public_headers import check


class PublicHeaders(unittest.TestCase):
    def problems(self, public, inner, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            (root / "cmake").mkdir()
            (root / "cmake" / "PublicHeaders.cmake").write_text(
                f"set(lockstep_public_headers {public})\nset(lockstep_reached_headers {inner})\n")
            return check(root)[0]

    files = {"lockstep/a.h": "#include <lockstep/base/b.h>\n", "lockstep/base/b.h": "", "lockstep/base/c.h": ""}

    def test_what_is_reached_and_listed_passes(self):
        self.assertEqual(self.problems("lockstep/a.h", "lockstep/base/b.h", self.files), [])

    def test_what_is_reached_and_not_listed_is_named(self):
        self.assertIn("lockstep/base/b.h is reached", self.problems("lockstep/a.h", "", self.files)[0])

    def test_what_is_listed_and_not_reached_is_named(self):
        found = self.problems("lockstep/a.h", "lockstep/base/b.h lockstep/base/c.h", self.files)
        self.assertEqual(found, ["lockstep/base/c.h is listed and no public header reaches it"])

    def test_what_is_not_there_or_for_tests_is_refused(self):
        self.assertIn("is not there", self.problems("lockstep/z.h", "", self.files)[0])
        self.assertIn("no public header", self.problems("", "", self.files)[0])
        files = {"lockstep/a.h": "#include <lockstep/b_test.h>\n", "lockstep/b_test.h": ""}
        self.assertIn("for the library or its tests", self.problems("lockstep/a.h", "lockstep/b_test.h", files)[0])


if __name__ == "__main__":
    unittest.main()
