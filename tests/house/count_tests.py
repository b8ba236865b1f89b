#!/usr/bin/env python3
"""Counts the tests in ctest's JUnit files, one file for each build in which they ran.

Says how often they ran and how many they are, "2 runs of 1 tests", and then "1 passed, 0 failed, 0 skipped", in which each
test counts once: as failed if it failed in any build, else as skipped if it was in any. Tests of one name are several where
one build has several. FILE.again, where it is there, has what failed and was run again, by itself: a test that passed there
is named before the counts as unsteady, and has failed all the same.
usage: count_tests.py FILE...
       count_tests.py --failed FILE   how many failed in it"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILED, SKIPPED, PASSED = range(3)  # the least of a test's outcomes is its own


def outcome_of(case):
    if case.find("failure") is not None or case.get("status") == "fail":
        return FAILED
    return PASSED if case.get("status") == "run" else SKIPPED


def read(file):
    """[(name, outcome)], in the file's order."""
    content = NOT_XML.sub("", pathlib.Path(file).read_text(errors="replace"))
    return [(case.get("name"), outcome_of(case)) for case in xml.etree.ElementTree.fromstring(content).iter("testcase")]


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
    for name in unsteady:
        print(f"unsteady: {name} failed, and passed by itself")
    print(f"{runs} runs of {tests} tests")
    print(f"{outcomes[PASSED]} passed, {outcomes[FAILED]} failed, {outcomes[SKIPPED]} skipped")
