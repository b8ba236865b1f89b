#!/usr/bin/env python3
"""Holds cmake/PublicHeaders.cmake against the includes: what an application may include, and what these reach, is all
that is installed. Prints how many headers an application reaches, or what is wrong; exit 1 then.

usage: public_headers.py REPOSITORY
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*["<](lockstep/[^">]+)[">]', re.MULTILINE)
LIST = re.compile(r"set\((lockstep_\w+_headers)([^)]*)\)")


def listed(repository):
    """{name of the list: its headers} of cmake/PublicHeaders.cmake."""
    text = (repository / "cmake" / "PublicHeaders.cmake").read_text()
    return {name: re.sub(r"#[^\n]*", "", words).split() for name, words in LIST.findall(text)}


def reached(repository, headers):
    seen, left = set(), list(headers)
    while left:
        header = left.pop()
        if header not in seen:
            seen.add(header)
            left += INCLUDE.findall((repository / header).read_text())
    return seen


def check(repository):
    """(problems, number of headers that are reached)"""
    lists = listed(repository)
    public, inner = lists.get("lockstep_public_headers", []), lists.get("lockstep_reached_headers", [])
    problems = [f"{header} is listed and is not there" for header in public + inner if not (repository / header).is_file()]
    if not public:
        problems.append("no public header is listed")
    if problems:
        return problems, 0
    found = reached(repository, public)
    everything = set(public) | set(inner)
    problems += [f"{header} is reached from a public header and not listed" for header in sorted(found - everything)]
    problems += [f"{header} is listed and no public header reaches it" for header in sorted(everything - found)]
    problems += [f"{header} is listed twice" for header in sorted(everything) if (public + inner).count(header) > 1]
    for header in sorted(found):
        if header.endswith(("_test.h", "_inl.h", "/impl.h")):
            problems.append(f"{header} is for the library or its tests, and a public header reaches it")
    return problems, len(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found_problems, count = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found_problems) if found_problems else f"an application reaches {count} headers, as listed")
    sys.exit(1 if found_problems else 0)
