"""What a job that was killed leaves to be looked at: its profile, its timeline and its report have to be whole."""
import glob
import json
import os
import subprocess

from job import Missed


def require_nested(events, what):
    """Of one row: as trace viewers want it, each range within the one before it, or behind it."""
    open_until = []
    for begin, end in sorted(events, key=lambda event: (event[0], -event[1])):
        while open_until and open_until[-1] <= begin + 0.002:  # microseconds, rounded
            open_until.pop()
        if open_until and end > open_until[-1] + 0.002:
            raise Missed(f"{what} has a range of {begin} to {end}, which ends after the one around it, {open_until[-1]}")
        open_until.append(end)


def require_whole_timeline(path, ranks):
    with open(path) as file:
        try:
            events = json.load(file)["traceEvents"]
        except ValueError as error:
            raise Missed(f"{path} is not whole: {error}")
    rows = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    if {rank for rank, _ in rows} != set(range(ranks)):
        raise Missed(f"{path} has events of ranks {sorted({rank for rank, _ in rows})}, of {ranks}")
    for (rank, row), ranges in rows.items():
        require_nested(ranges, f"{path}: row {row} of rank {rank}")


def require_whole_profile(folder, ranks):
    for rank in range(ranks):
        found = glob.glob(f"{folder}/lockstep_profile.*.{rank}")
        if len(found) != 1:
            raise Missed(f"there are {len(found)} profiles of rank {rank}")
        with open(found[0]) as file:
            text = file.read()
        for part in (f"Data for rank {rank} of {ranks}:\n", "total communication time = ", "max resident set size ",
                     "Message size distributions:\n", "Waiting for others and transfer"):
            if part not in text:
                raise Missed(f"the profile of rank {rank} has no '{part.strip()}': {text}")


def require_whole(lockstep, folder, ranks):
    require_whole_profile(f"{folder}/profile", ranks)
    require_whole_timeline(f"{folder}/report/timeline.json", ranks)
    said = subprocess.run([lockstep, "report", f"{folder}/report"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60)
    if said.returncode or "The run failed: " not in said.stdout or "What is missing" in said.stdout:
        raise Missed(f"`lockstep report` says, with exit code {said.returncode}: {said.stdout}")
    left = [name for _, _, names in os.walk(folder) for name in names if ".tmp-" in name]
    if left:
        raise Missed(f"half-written files are left: {left}")
