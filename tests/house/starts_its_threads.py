#!/usr/bin/env python3
"""The library starts its threads by start_thread(), which makes an Error of what cannot be started.
usage: starts_its_threads.py REPOSITORY"""
import pathlib
import re
import sys

STARTS = re.compile(r"std::j?thread(?:\s+\w+)?\s*[({](?!\s*[)}])|make_(?:unique|shared)<std::j?thread>\((?!start_thread)|std::async\b|\bpthread_create\b")


def problems(repository):
    root = pathlib.Path(repository)
    sources = [path for path in sorted((root / "lockstep").rglob("*")) if path.suffix in (".h", ".cpp")]
    found, seen = [], 0
    for path in sources:
        if path.name.endswith(("_test.h", "_test.cpp")):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            seen += "start_thread" in line
            if STARTS.search(line.split("//")[0]):
                found.append(f"{path.relative_to(root)}:{number}: starts a thread by itself; use start_thread()")
    return found if seen else ["nothing starts a thread: is this the repository?"]


if __name__ == "__main__":
    complaints = problems(sys.argv[1])
    for line in ("std::thread other([&] { run(); });", "thread_ = std::thread([this] { run(); });",
                 "std::make_unique<std::thread>(run)", "std::jthread{run}", "std::async(run)"):
        if not STARTS.search(line):
            complaints.append(f"the checker does not see that this starts a thread: {line}")
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)
