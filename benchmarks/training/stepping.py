"""What ranks of peers in Python have in common: their arguments, and the time of training steps."""
import argparse
import json
import os
import resource
import statistics
import time

import torch
from models import MODELS

OPTIMIZERS = {"sgd": (torch.optim.SGD, {"lr": 0.001, "momentum": 0.9}), "adamw": (torch.optim.AdamW, {"lr": 0.0001})}


def parser(description):
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--model", choices=MODELS)
    made.add_argument("--mode")
    made.add_argument("--optimizer", choices=OPTIMIZERS)
    made.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    made.add_argument("--steps", type=int)
    made.add_argument("--warm-up", type=int, default=10)
    return made


def start(options):
    """(the model, inputs, targets), the same on all ranks"""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if options.device.type == "cuda" and options.device.index is None:
        options.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net, inputs = MODELS[options.model]()
    return net.to(options.device), inputs.to(options.device), torch.randint(10, (len(inputs),)).to(options.device)


def measure(options, forward, optimizer, inputs, targets):
    """This rank's median step in seconds, and its page faults per step."""
    times, faults = [], 0
    for step in range(-options.warm_up, options.steps):
        if step == 0:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forward(inputs), targets).backward()
        optimizer.step()
        if options.device.type == "cuda":
            torch.cuda.synchronize()
        if step >= 0:
            times.append(time.perf_counter() - begin)
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / options.steps
    return torch.tensor([statistics.median(times), faults])


def report(average, images, ranks):
    """`average`: over the ranks, of what measure() returned."""
    step_s, faults = average.tolist()
    print(json.dumps({"images_per_s": round(images * ranks / step_s, 1), "faults_per_step": round(faults, 1)}), flush=True)
