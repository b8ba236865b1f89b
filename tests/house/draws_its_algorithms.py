#!/usr/bin/env python3
"""docs/algorithms.md and docs/strategies.md show what algorithms and pipelines do now: each of their pictures is what the
command in the comment before it prints, and every algorithm and every schedule has one.

usage: draws_its_algorithms.py REPOSITORY LOCKSTEP [--refresh]
LOCKSTEP is the command, build/release/bin/lockstep. --refresh draws all pictures of the page again.
"""
import pathlib
import re
import subprocess
import sys

PICTURE = re.compile(r"<!-- lockstep ((?:algorithms|pipelines)[^\n]*) -->\n```\n(.*?)```\n", re.DOTALL)


def drawn(lockstep, arguments):
    return subprocess.run([lockstep, *arguments.split()], capture_output=True, text=True, check=True).stdout


def families(text):
    """The first words of the titles of pictures."""
    return set(re.findall(r"^(\w+)(?: \w+|: .*)\nrank 0", text, re.MULTILINE))


def problems_with(page, command, lockstep):
    pictures = PICTURE.findall(page)
    problems = [f"`lockstep {arguments}` draws something else now" for arguments, picture in pictures
                if picture != drawn(lockstep, arguments)]
    if len(pictures) != page.count("<!-- lockstep "):
        problems.append("a comment with a command has no picture after it")
    shown = families("".join(picture for _, picture in pictures))
    problems += [f"{name} has no picture" for name in sorted(families(drawn(lockstep, command)) - shown)]
    return problems


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    command, problems = sys.argv[2], []
    for name, shown_by in (("docs/algorithms.md", "algorithms"), ("docs/strategies.md", "pipelines")):
        path = pathlib.Path(sys.argv[1]) / name
        if sys.argv[3:] == ["--refresh"]:
            path.write_text(PICTURE.sub(
                lambda match: f"<!-- lockstep {match[1]} -->\n```\n{drawn(command, match[1])}```\n", path.read_text()))
        problems += [f"{name}: {problem}" for problem in problems_with(path.read_text(), shown_by, command)]
    if problems:
        sys.exit("\n".join(problems) +
                 "\nTo refresh pictures: tests/house/draws_its_algorithms.py . build/release/bin/lockstep --refresh")
