#!/usr/bin/env python3
"""Counts the tests in ctest's JUnit files, one file for each build in which they ran.

Says how often they ran and how many they are, "2 runs of 1 tests", and then "1 passed, 0 failed, 0 skipped", in which each
test counts once: as failed if it failed in any build, else as skipped if it was in any. Tests of one name are several where
one build has several, and a case named SUITE.* is those that GoogleTest began in it. FILE.again, where it is there, has what
failed and was run again, by itself: a test that passed there is named before the counts as unsteady, and has failed all the
same. Before all this stands what the first few that failed printed, from where GoogleTest says Failure or else the end.
usage: count_tests.py FILE...
       count_tests.py --failed FILE   how many failed in it"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILED, SKIPPED, PASSED = range(3)  # the least of a test's outcomes is its own
OF_SUITE = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+\.[^\s,]+)", re.MULTILINE)
MOST_QUOTED, LINES_QUOTED = 3, 12


def outcome_of(case):
    if case.find("failure") is not None or case.get("status") == "fail":
        return FAILED
    return PASSED if case.get("status") == "run" else SKIPPED


def cases_in(file):
    content = NOT_XML.sub("", pathlib.Path(file).read_text(errors="replace"))
    return xml.etree.ElementTree.fromstring(content).iter("testcase")


def said_by(case):
    return (case.findtext("system-out") or "").rstrip()


def tests_of(case):
    """[(name, outcome)]: one, but of a suite those that it began; itself where none of these explains how it ended."""
    name, outcome = case.get("name"), outcome_of(case)
    tests = {}
    if name.endswith(".*"):
        ended = {"RUN": FAILED, "OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}
        tests = {test: ended[word] for word, test in OF_SUITE.findall(said_by(case))}
    if outcome not in tests.values():
        tests[name] = outcome
    return list(tests.items())


def read(file):
    """[(name, outcome)], in the file's order."""
    return [test for case in cases_in(file) for test in tests_of(case)]


def quotes(files):
    """A text for each of the first cases that failed: its name, and what it printed."""
    failed = [case for file in files for case in cases_in(file) if outcome_of(case) == FAILED]
    for case in failed[:MOST_QUOTED]:
        lines = said_by(case).splitlines()
        first = next((at for at, line in enumerate(lines) if line.endswith(": Failure")), -LINES_QUOTED)
        lines = lines[first:][:LINES_QUOTED]
        yield "\n".join([f"{case.get('name')} ended with:", *(f"   | {line[:200]}" for line in lines)])


def count(files):
    """(runs, tests, outcome -> tests, names of the unsteady)."""
    outcomes, runs, unsteady = {}, 0, []
    for file in files:
        seen = collections.Counter()
        again = pathlib.Path(file + ".again")
        second = read(again) if again.exists() else []
        runs += len(second)
        for name, outcome in read(file):
            if outcome == FAILED and (name, PASSED) in second:
                second.remove((name, PASSED))
                unsteady.append(name)
            key = (name, seen[name])
            seen[name] += 1
            runs += 1
            outcomes[key] = min(outcomes.get(key, PASSED), outcome)
    return runs, len(outcomes), collections.Counter(outcomes.values()), unsteady


if __name__ == "__main__":
    if sys.argv[1] == "--failed":
        print(sum(outcome == FAILED for _, outcome in read(sys.argv[2])))
        sys.exit()
    runs, tests, outcomes, unsteady = count(sys.argv[1:])
    for quote in quotes(sys.argv[1:]):
        print(quote)
    for name in unsteady:
        print(f"unsteady: {name} failed, and passed by itself")
    print(f"{runs} runs of {tests} tests")
    print(f"{outcomes[PASSED]} passed, {outcomes[FAILED]} failed, {outcomes[SKIPPED]} skipped")
