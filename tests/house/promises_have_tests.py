#!/usr/bin/env python3
"""Each promise of docs/guarantees.md and docs/errors.md names the tests that hold it, and each of them is there.

A promise is a row of a table, whose last cell names its tests, or a paragraph below the first heading of second order,
which ends with "Held by" and their names. A name is `Suite.Name` as the sources or a CMakeLists.txt have it, `Suite.*`
for all of a suite, or `script/soak NAME --options`.
usage: promises_have_tests.py REPOSITORY"""
import pathlib
import re
import sys

PAGES = ("docs/guarantees.md", "docs/errors.md")
FOLDERS = ("lockstep", "tests", "benchmarks")
IN_SOURCE = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
IN_CMAKE = re.compile(r"add_test\(\s*NAME\s+(\S+)")
VARIABLE = re.compile(r"\$\{\w+\}")
LIST = re.compile(r"`[^`]+`(?:, `[^`]+`)*")
HELD_BY = "Held by "


class Tests:
    """Those of a repository, by name."""

    def __init__(self, repository):
        self.names, self.patterns, self.soak = set(), [], pathlib.Path(repository) / "tests/soak"
        for folder in FOLDERS:
            for path in sorted((pathlib.Path(repository) / folder).rglob("*")):
                if path.name.endswith((".cpp", "_test.h")):
                    self.names |= {".".join(found) for found in IN_SOURCE.findall(path.read_text())}
                elif path.name == "CMakeLists.txt":
                    self.read_cmake(path.read_text())
        self.suites = {name.split(".")[0] for name in self.names}

    def read_cmake(self, text):
        words = set(re.findall(r"\w+", text))
        for name in IN_CMAKE.findall(text):
            if VARIABLE.search(name):  # of a loop: its variables stand for words of the same file
                parts = [re.escape(part) for part in VARIABLE.split(name)]
                self.patterns.append((re.compile(r"([A-Za-z0-9]+)".join(parts)), words))
            else:
                self.names.add(name)

    def problem(self, name):
        """What is wrong with one; None: it is there."""
        if name.startswith("script/soak "):
            return self.problem_of_soak(name.split()[1:])
        if name.endswith(".*"):
            return None if name[:-2] in self.suites else f"there is no suite {name[:-2]}"
        if name in self.names:
            return None
        for pattern, words in self.patterns:
            found = pattern.fullmatch(name)
            if found and set(found.groups()) <= words:
                return None
        return f"there is no test {name}"

    def problem_of_soak(self, words):
        program = self.soak / words[0]
        if not program.is_file() or "." in words[0]:
            return f"there is no soak {words[0]}"
        unknown = [word for word in words[1:] if f'"{word}"' not in program.read_text()]
        return f"script/soak {words[0]} knows no {unknown[0]}" if unknown else None


def blocks_of(text):
    """Of a page: (number of its first line, lines) of what stands between empty lines."""
    block = []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield block[0][0], [line for _, line in block]
            block = []


def promises_of(text):
    """(line, its beginning, what should name its tests)."""
    is_below = False
    for first, lines in blocks_of(text):
        is_below |= lines[0].startswith("## ")
        if lines[0].startswith("#"):
            continue
        if lines[0].startswith("|"):
            for number, line in enumerate(lines[2:], first + 2):
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
                yield number, cells[0], cells[-1]
        elif is_below:
            paragraph = " ".join(lines)
            yield first, paragraph[:60], paragraph.rpartition(HELD_BY)[2].rstrip(".") if HELD_BY in paragraph else ""


def check(repository):
    """A line for each problem."""
    tests, problems = Tests(repository), []
    for page in PAGES:
        promises = list(promises_of((pathlib.Path(repository) / page).read_text()))
        if not promises:
            problems.append(f"{page}: there is no promise")
        for number, promise, named in promises:
            if not LIST.fullmatch(named):
                problems.append(f"{page}:{number}: '{promise}' ends with no list of tests, `Suite.Name`, `Suite.*`")
                continue
            for name in re.findall(r"`([^`]+)`", named):
                if problem := tests.problem(name):
                    problems.append(f"{page}:{number}: {problem}")
    return problems


if __name__ == "__main__":
    found = check(sys.argv[1])
    print("\n".join(found))
    sys.exit(1 if found else 0)
