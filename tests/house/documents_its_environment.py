#!/usr/bin/env python3
"""docs/environment.md names every variable of ours that the sources read, and none that they do not.
usage: documents_its_environment.py REPOSITORY"""
import pathlib
import re
import sys

repository = pathlib.Path(sys.argv[1])
read = set()
for folder in ("lockstep", "mpitrace", "tools"):
    for source in (repository / folder).rglob("*.cpp"):
        if not source.name.endswith("_test.cpp"):
            read |= set(re.findall(r'env::\w+\("(LOCKSTEP_\w+)"', source.read_text()))
for source in (repository / "python").rglob("*.py"):
    read |= set(re.findall(r'os\.environ(?:\.get\(|\[)"(LOCKSTEP_\w+)"', source.read_text()))
documented = set(re.findall(r"`(LOCKSTEP_[A-Z_]+)(?:=\w+)?`", (repository / "docs/environment.md").read_text()))
if read != documented:
    sys.exit(f"docs/environment.md: not documented {sorted(read - documented)}, not read {sorted(documented - read)}")
