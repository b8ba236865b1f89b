#!/usr/bin/env python3
"""Counts the tests in ctest's JUnit files, one file for each build in which they ran.

Says how often they ran and how many they are, "2 runs of 1 tests", and then "1 passed, 0 failed, 0 skipped", in which each
test counts once: as failed if it failed in any build, else as skipped if it was in any. Tests of one name are several where
one build has several.
usage: count_tests.py FILE..."""
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


def count(files):
    """(runs, tests, outcome -> tests)."""
    outcomes, runs = {}, 0
    for file in files:
        content = pathlib.Path(file).read_text(errors="replace")
        seen = collections.Counter()
        for case in xml.etree.ElementTree.fromstring(NOT_XML.sub("", content)).iter("testcase"):
            name = case.get("name")
            key = (name, seen[name])
            seen[name] += 1
            runs += 1
            outcomes[key] = min(outcomes.get(key, PASSED), outcome_of(case))
    return runs, len(outcomes), collections.Counter(outcomes.values())


if __name__ == "__main__":
    runs, tests, outcomes = count(sys.argv[1:])
    print(f"{runs} runs of {tests} tests")
    print(f"{outcomes[PASSED]} passed, {outcomes[FAILED]} failed, {outcomes[SKIPPED]} skipped")
