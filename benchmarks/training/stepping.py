"""What ranks of peers in Python have in common: their arguments, and the time of training steps."""
import argparse
import json
import os
import resource
import statistics
import threading
import time

import model_list
import models
import torch

OPTIMIZERS = {"sgd": (torch.optim.SGD, {"lr": 0.001, "momentum": 0.9}), "adamw": (torch.optim.AdamW, {"lr": 0.0001})}


def parser(description):
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--model", choices=model_list.MODELS)
    made.add_argument("--mode")
    made.add_argument("--optimizer", choices=OPTIMIZERS)
    made.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    made.add_argument("--steps", type=int)
    made.add_argument("--warm-up", type=int, default=10)
    made.add_argument("--check", action="store_true", help="compare what is left with one process's")
    made.add_argument("--watch-memory", action="store_true", help="say what all ranks have resident at the most")
    made.add_argument("--without-averaging", action="store_true", help="for a test: leave ranks apart")
    made.add_argument("--fused", action="store_true", help="the optimizer in one kernel")
    return made


def start(options, rank):
    """(the model, this rank's inputs, its targets)"""
    torch.set_num_threads(1)
    if options.device.type == "cuda" and options.device.index is None:
        options.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return models.net_of(options.model).to(options.device), *models.batch_of(options.model, rank, options.device)


def optimizer_of(options):
    """(its class, its arguments)"""
    kind, arguments = OPTIMIZERS[options.optimizer]
    return kind, {**arguments, "fused": True} if options.fused else arguments


def step(forward, optimizer, inputs, targets):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(forward(inputs), targets).backward()
    optimizer.step()


class MemoryWatch:
    """The most that this process has had resident, of what it shares its part, since this was made: looked at every millisecond."""

    def __init__(self):
        self._most, self._ends = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._ends.is_set():
            with open("/proc/self/smaps_rollup") as lines:
                self._most = max(self._most, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")))
            time.sleep(0.001)

    def end(self):
        self._ends.set()
        self._thread.join()
        return self._most


def measure(options, forward, optimizer, inputs, targets):
    """This rank's median step in seconds, its page faults per step, and, if it was asked for, the most that it had resident."""
    times, faults = [], 0
    memory = MemoryWatch() if options.watch_memory else None
    for number in range(-options.warm_up, options.steps):
        if number == 0:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        begin = time.perf_counter()
        step(forward, optimizer, inputs, targets)
        if options.device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 0:
            times.append(time.perf_counter() - begin)
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / options.steps
    return [statistics.median(times), faults, memory.end() if memory else 0]


def report(options, images, everybody):
    """`everybody`: of each rank, what measure() returned and then what agreement.compare() did."""
    step_s, faults = everybody[:, :2].mean(0).tolist()
    difference, error = everybody[:, 3:].max(0).values.tolist()
    made = {"images_per_s": round(images * len(everybody) / step_s, 1), "faults_per_step": round(faults, 1),
            "shared_heap": False, "difference_between_ranks": difference, "torch": torch.__version__}
    if options.watch_memory:
        made["resident_bytes"] = round(everybody[:, 2].sum().item())
    if options.check:
        made["error_to_one_process"] = error
    print(json.dumps(made), flush=True)
