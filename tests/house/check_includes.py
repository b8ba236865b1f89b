#!/usr/bin/env python3
"""Holds the includes against the floors of docs/architecture.md: a file includes only floors below its own, or its
own folder. train/ is rooms on floors of their own; no file stands in its hall. Tests may
include siblings of what they test, and in train/ any room: what a part does shows only in a training. Prints each
include that goes up or sideways; exit 1 if any.

usage: check_includes.py REPOSITORY
"""
import pathlib
import re
import sys

FLOORS = {
    "base": 0,
    "topology": 1, "trace": 1, "kernel": 1, "schedule": 1, "pipeline": 1, "rendezvous": 1,
    "memory": 2,
    "transport": 3, "view/profile": 3, "view/live": 3,
    "execute": 4,
    "backend": 5, "view/explain": 5, "view/report": 5,
    "group": 6,
    "engine": 7, "elastic": 7, "data": 7, "launch": 7,
    "train": 8, "view": 8,
}
# The rooms of train/, and the floor within it that each is on. trials/ has tests only: whole trainings.
ROOMS = {
    "tensor": 0,
    "optimizer": 1, "datasets": 1, "devices": 1,
    "replicas": 2,
    "data_parallel": 3, "sharded": 3, "checkpoint": 3, "elastic": 3, "parameter_server": 3,
    "data_parallel/hooks": 4, "trainer": 4, "pipeline": 4, "tensor_parallel": 4,
    "horovod": 5,
    "trials": 6,
}
# Siblings inside one floor that must not know each other either.
SIBLINGS = {"transport": {"ring", "tcp"}, "backend": {"native"}}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]lockstep/([^">]+)[">]', re.MULTILINE)
LIBTORCH = re.compile(r'^\s*#\s*include\s*["<](torch|c10|ATen|caffe2)/', re.MULTILINE)


def part(path, index):
    return path.parts[index] if len(path.parts) > index + 1 else None


def problem_with(source, target):
    """Why `source` may not include `target` (both relative to lockstep/), or None."""
    if len(source.parts) == 1:  # an umbrella
        return None
    if len(target.parts) == 1:
        return "includes an umbrella"
    floor, other = source.parts[0], target.parts[0]
    if floor not in FLOORS or other not in FLOORS:
        return "is not on a floor of docs/architecture.md"
    is_test = source.stem.endswith("_test")
    if floor == other == "train":
        return problem_between_rooms(room_of(source), room_of(target), is_test)
    if floor == other:
        room, other_room = part(source, 1), part(target, 1)
        closed = SIBLINGS.get(floor, set())
        if room in closed and other_room in closed and room != other_room and not is_test:
            return "goes sideways"
        return "goes up" if floor_of(target) > floor_of(source) else None
    if floor_of(target) > floor_of(source):
        return "goes up"
    if floor_of(target) == floor_of(source) and not is_test:
        return "goes sideways"
    return None


def floor_of(path):
    """That of the innermost folder that has one of its own."""
    return next(FLOORS[str(folder)] for folder in path.parents if str(folder) in FLOORS)


def room_of(path):
    """Of a file of train/: its folder within it, "." for the hall."""
    return str(path.parent.relative_to("train"))


def problem_between_rooms(room, other, is_test):
    for name in (room, other):
        if name not in ROOMS:
            return "is not in a room of train/"
    if room == other or is_test:
        return None
    if ROOMS[other] > ROOMS[room]:
        return "goes up"
    return "goes sideways" if ROOMS[other] == ROOMS[room] else None


def check(repository):
    root = pathlib.Path(repository) / "lockstep"
    problems = []
    count = 0
    for file in sorted(root.rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        count += 1
        source = file.relative_to(root)
        text = file.read_text()
        if source.parts[0] == "train" and room_of(source) not in ROOMS:
            problems.append(f"lockstep/{source} stands in no room of train/")
        for match in INCLUDE.finditer(text):
            why = problem_with(source, pathlib.PurePosixPath(match.group(1)))
            if why:
                problems.append(f"lockstep/{source}: {match.group(0).strip()} {why}")
        if source.parts[0] != "train" and source.name != "train.h" and LIBTORCH.search(text):
            problems.append(f"lockstep/{source}: includes libtorch outside of train/")
    if count == 0:
        problems.append(f"no sources under {root}")
    return problems


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = check(sys.argv[1])
    print("\n".join(found) if found else "every include goes down")
    sys.exit(1 if found else 0)
