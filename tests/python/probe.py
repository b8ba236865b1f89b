"""What scripts for tests have in common: actions that are found by name, and lines that tell what a rank saw."""
import json
import os

ACTIONS = {}


def action(function):
    ACTIONS[function.__name__] = function
    return function


def tell(rank, *words):
    """One write: ranks may share a pipe."""
    os.write(1, (" ".join(map(str, ("probe", rank, *words))) + "\n").encode())


def algorithms_in(timeline, least_bytes):
    """Of rank 0's all_reduces of so many bytes or more, by the timeline in this file."""
    with open(timeline) as read:
        events = json.load(read)["traceEvents"]
    return [event["args"]["algorithm"] for event in events if event.get("cat") == "call" and event["pid"] == 0
            and event["name"] == "all_reduce" and event["args"]["bytes"] >= least_bytes]


def expect_error(say, kind, call):
    """Says by say() what went wrong; it has to."""
    try:
        call()
    except kind as error:
        say(type(error).__name__, getattr(error, "code", "-"), getattr(error, "rank", "-"), str(error).replace("\n", " "))
    else:
        raise SystemExit("there was no error")
