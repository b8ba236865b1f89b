#!/usr/bin/env python3
"""What script/test says of the tests that ran: with a ctest that only writes results, and nothing to build.
usage: test_command_test.py REPOSITORY"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
BUILDS = ("release", "asan", "tsan")
CTEST = """#!/bin/sh
echo "$*" >>"$RESULTS/asked"
while [ $# -gt 0 ]; do
  case $1 in --preset) preset=$2 ;; --output-junit) file=$2 ;; --rerun-failed) again=.again ;; esac
  shift
done
preset=$preset${again:-}
cp "$RESULTS/$preset.xml" "$file"
! grep -q 'status="fail"' "$file"
"""
CASES = {"run": "", "fail": "<failure/>", "notrun": "<skipped/>", "disabled": "<skipped/>"}


class TestCommand(unittest.TestCase):
    def run_with(self, results, arguments=(), environment=()):
        """`results`: build -> [(name, status)], with what it printed where that matters; of builds that are not there, none."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for file in ("script/test", "script/functions.bash", "tests/house/count_tests.py"):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / file, root / file)
            (root / "bin").mkdir()
            stubs = {f"script/{stub}": "#!/bin/sh\n" for stub in ("bootstrap", "format", "tidy")}
            build = "#!/bin/sh\nmkdir -p build/$1\n"
            for file, text in {**stubs, "script/build": build, "bin/ctest": CTEST}.items():
                (root / file).write_text(text)
                (root / file).chmod(0o755)
            for build in (*BUILDS, *(f"{build}.again" for build in BUILDS)):
                cases = "".join(f'<testcase name="{test}" status="{status}">{CASES[status]}<system-out>\x1b[0m\x00'
                                f'{"".join(said) or f"{test} in {build}"}\n</system-out></testcase>'
                                for test, status, *said in results.get(build, results.get(build.removesuffix(".again"), ())))
                (root / f"{build}.xml").write_text(f'<?xml version="1.0"?><testsuite>{cases}</testsuite>')
            variables = {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "RESULTS": name,
                         "LOCKSTEP_NO_SKIP": "", **dict(environment)}
            done = subprocess.run([root / "script/test", *arguments], env=variables, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            self.asked = (root / "asked").read_text().splitlines()
            return done.returncode, done.stdout.splitlines()

    def expect(self, results, code, runs, summary, **more):
        returned, said = self.run_with(results, **more)
        self.assertEqual(said[-2:], [runs, summary], said)
        self.assertEqual(returned, code, said)
        return said

    def test_a_test_of_several_builds_is_one(self):
        everywhere = {build: [("Ring.Works", "run")] for build in BUILDS}
        self.expect(everywhere, 0, "3 runs of 1 tests", "1 passed, 0 failed, 0 skipped")
        self.expect({**everywhere, "release": [("Ring.Works", "run"), ("Adam.Works", "run")]}, 0, "4 runs of 2 tests",
                    "2 passed, 0 failed, 0 skipped")

    def test_one_that_fails_anywhere_has_failed(self):
        for failing in BUILDS:
            results = {build: [("Ring.Works", "fail" if build == failing else "run")] for build in BUILDS}
            said = self.expect(results, 1, "4 runs of 1 tests", "0 passed, 1 failed, 0 skipped")
            quoted = said.index("Ring.Works ended with:")
            self.assertIn(f"Ring.Works in {failing}", said[quoted + 1])

    def test_one_that_passes_by_itself_is_named_and_has_failed(self):
        results = {build: [("Ring.Works", "run"), ("Adam.Works", "run")] for build in BUILDS}
        results |= {"release": [("Ring.Works", "fail"), ("Adam.Works", "run")], "release.again": [("Ring.Works", "run")]}
        self.expect(results, 1, "7 runs of 2 tests", "1 passed, 1 failed, 0 skipped")
        self.assertIn("unsteady: Ring.Works failed, and passed by itself", self.run_with(results)[1])
        results["release.again"] = [("Ring.Works", "fail")]
        self.expect(results, 1, "7 runs of 2 tests", "1 passed, 1 failed, 0 skipped")

    def test_a_suite_is_as_many_as_began(self):
        began, ended, bad = "[ RUN      ] Ring.{}\n", "[       OK ] Ring.{} (3 ms)\n", "[  FAILED  ] Ring.{}, where GetParam() = 3\n"
        fine = (began + ended).format(1, 1) + (began + ended).format(2, 2)
        self.expect({"release": [("Ring.*", "run", fine)]}, 0, "2 runs of 2 tests", "2 passed, 0 failed, 0 skipped")
        wrong = fine + (began + "ring_test.cpp:3: Failure\n" + bad).format(3, 3) + (began + ended).format(4, 4)
        said = self.expect({"release": [("Ring.*", "fail", wrong)], "release.again": [("Ring.*", "run", fine)]}, 1,
                           "6 runs of 4 tests", "3 passed, 1 failed, 0 skipped")
        self.assertEqual(said[said.index("Ring.* ended with:") + 1].strip(), "| ring_test.cpp:3: Failure")
        crashed = fine + began.format(3)
        self.expect({"release": [("Ring.*", "fail", crashed)]}, 1, "6 runs of 3 tests", "2 passed, 1 failed, 0 skipped")
        self.expect({"release": [("Ring.*", "fail", fine)]}, 1, "6 runs of 3 tests", "2 passed, 1 failed, 0 skipped")
        skipped = fine + (began + "[  SKIPPED ] Ring.{} (0 ms)\n").format(3, 3)
        self.expect({"release": [("Ring.*", "notrun", skipped)]}, 0, "3 runs of 3 tests", "2 passed, 0 failed, 1 skipped")

    def test_many_that_fail_are_not_run_again(self):
        names = [f"Ring.Works{number}" for number in range(4)]
        results = {"release": [(name, "fail") for name in names], "release.again": [(name, "run") for name in names]}
        self.expect(results, 1, "4 runs of 4 tests", "0 passed, 4 failed, 0 skipped")

    def test_one_that_is_skipped_anywhere_is_skipped(self):
        results = {"release": [("Ring.Works", "run"), ("Drive.Works", "disabled")], "asan": [("Ring.Works", "notrun")]}
        self.expect(results, 0, "3 runs of 2 tests", "0 passed, 0 failed, 2 skipped")
        self.expect(results, 1, "3 runs of 2 tests", "0 passed, 0 failed, 2 skipped",
                    environment={"LOCKSTEP_NO_SKIP": "1"})

    def test_two_of_one_name_in_one_build_are_two(self):
        twice = [("Explain.ADeath", "run"), ("Explain.ADeath", "fail")]
        self.expect({"release": twice, "release.again": [("Explain.ADeath", "fail")]}, 1, "3 runs of 2 tests", "1 passed, 1 failed, 0 skipped")

    def test_long_ones_are_left_out_unless_they_are_asked_for(self):
        for arguments, leaves_out in (([], True), (["--all"], False), (["-R", "Ring"], False), (["--all", "-R", "Ring"], False)):
            self.expect({build: [("Ring.Works", "run")] for build in BUILDS}, 0, "3 runs of 1 tests",
                        "1 passed, 0 failed, 0 skipped", arguments=arguments)
            self.assertEqual(["-LE ^long$" in asked for asked in self.asked], [leaves_out] * 3)
            self.assertEqual(["-R Ring" in asked for asked in self.asked], ["Ring" in arguments] * 3)
            self.assertFalse(any("--all" in asked for asked in self.asked))

    def test_a_selection_of_nothing_fails(self):
        for arguments in (["-R", "typo"], []):
            code, said = self.run_with({}, arguments)
            self.assertNotEqual(code, 0)
            self.assertEqual(said[-2:], ["0 runs of 0 tests", "0 passed, 0 failed, 0 skipped"])
        self.assertIn("test: no test is selected by: -R typo", self.run_with({}, ["-R", "typo"])[1])

    def test_a_selection_may_be_empty_in_some_builds(self):
        self.expect({"release": [("Adam.Works", "run")]}, 0, "1 runs of 1 tests", "1 passed, 0 failed, 0 skipped",
                    arguments=["-R", "Adam"])


if __name__ == "__main__":
    unittest.main()
