"""What the peers' programs have in common: steps that are timed, and how their time is said."""
import json
import statistics
import time


def median_of(options, once):
    for _ in range(options.warm_up):
        once()
    seconds = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def say(options, seconds):
    print(json.dumps({"case": options.mode, "seconds": seconds}), flush=True)


def add_options(parser):
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0)
