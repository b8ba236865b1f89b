#!/usr/bin/env python3
"""docs/algorithms.md shows what the algorithms do now: each of its pictures is what the command in the comment before
it prints, and every algorithm has one.

usage: draws_its_algorithms.py REPOSITORY LOCKSTEP [--refresh]
LOCKSTEP is the command, build/release/bin/lockstep. --refresh draws all pictures of the page again.
"""
import pathlib
import re
import subprocess
import sys

PICTURE = re.compile(r"<!-- lockstep (algorithms[^\n]*) -->\n```\n(.*?)```\n", re.DOTALL)


def drawn(lockstep, arguments):
    return subprocess.run([lockstep, *arguments.split()], capture_output=True, text=True, check=True).stdout


def families(text):
    """The first words of the titles of pictures."""
    return set(re.findall(r"^(\w+) \w+\nrank 0", text, re.MULTILINE))


def problems_with(page, lockstep):
    pictures = PICTURE.findall(page)
    problems = [f"`lockstep {arguments}` draws something else now" for arguments, picture in pictures
                if picture != drawn(lockstep, arguments)]
    if len(pictures) != page.count("<!-- lockstep "):
        problems.append("a comment with a command has no picture after it")
    shown = families("".join(picture for _, picture in pictures))
    problems += [f"{name} has no picture" for name in sorted(families(drawn(lockstep, "algorithms")) - shown)]
    return problems


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, command = pathlib.Path(sys.argv[1]) / "docs/algorithms.md", sys.argv[2]
    if sys.argv[3:] == ["--refresh"]:
        fresh = PICTURE.sub(
            lambda match: f"<!-- lockstep {match[1]} -->\n```\n{drawn(command, match[1])}```\n", path.read_text())
        path.write_text(fresh)
    found = problems_with(path.read_text(), command)
    if found:
        sys.exit("docs/algorithms.md: " + "; ".join(found) +
                 "\nTo refresh its pictures: tests/house/draws_its_algorithms.py . build/release/bin/lockstep --refresh")
