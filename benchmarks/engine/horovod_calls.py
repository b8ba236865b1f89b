"""Named all-reduces of Horovod over Gloo, as named_calls.cpp. Started with --ranks it is Horovod's launcher, as
training/horovod_step.py."""
import argparse
import json
import pathlib
import random
import resource
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "training"))


def one_after_the_other(hvd, torch, elements, calls):
    times = []
    values = torch.ones(elements)
    for call in range(-(calls // 10), calls):
        values.fill_(1)
        begin = time.perf_counter()
        hvd.allreduce_(values, name="values", op=hvd.Sum)  # in place: no tensor is made for the result
        if call >= 0:
            times.append((time.perf_counter() - begin) * 1e6)
        assert values[0] == hvd.size()
    say(hvd, "one after the other", 4 * elements, statistics.median(times))


def many_in_any_order(hvd, torch, tensors, rounds):
    order = list(range(tensors))
    times = []
    for number in range(-1, rounds):
        random.Random(1000 * number + hvd.rank()).shuffle(order)
        values = [torch.ones(64) for _ in range(tensors)]
        hvd.allreduce(torch.zeros(1), name="round")
        begin = time.perf_counter()
        handles = [hvd.allreduce_async_(values[i], name=f"tensor {i}", op=hvd.Sum) for i in order]
        for handle in handles:
            hvd.synchronize(handle)
        if number >= 0:
            times.append((time.perf_counter() - begin) * 1e6)
        assert all(value[63] == hvd.size() for value in values)
    say(hvd, "many in any order", 256 * tensors, statistics.median(times))


def idle(hvd, torch, seconds):
    for waits in (True, False):
        hvd.allreduce(torch.zeros(1), name="idle")
        begin, used = time.perf_counter(), processor_seconds()
        if hvd.rank() != 0 or not waits:
            time.sleep(seconds)
        hvd.allreduce(torch.zeros(16), name="values of idle")
        share = (processor_seconds() - used) / (time.perf_counter() - begin)
        say(hvd, "share of a core, " + ("waiting" if waits else "idle"), 0, share)


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def say(hvd, case, size, value):
    if hvd.rank() == 0:
        print(json.dumps({"case": case, "bytes": size, "value": value}), flush=True)


def measure():
    import horovod.torch as hvd
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-ms", type=int, default=2000)
    parser.add_argument("--elements", default="16,1024,262144")
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    for elements in map(int, options.elements.split(",")):
        one_after_the_other(hvd, torch, elements, max(10, options.calls // (10 if elements > 100_000 else 1)))
    many_in_any_order(hvd, torch, 1000, options.rounds)
    if options.idle_ms:
        idle(hvd, torch, options.idle_ms / 1000)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    import horovod_step

    if "--ranks" in sys.argv:
        sys.exit(horovod_step.launch(__file__))
    horovod_step.pin()
    sys.exit(measure())
