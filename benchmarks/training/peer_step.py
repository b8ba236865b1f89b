"""A rank of torch's DistributedDataParallel over Gloo, with or without ZeroRedundancyOptimizer: as training_step.cpp,
with the same models, and started by the same launcher."""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
from models import MODELS
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

OPTIMIZERS = {"sgd": (torch.optim.SGD, {"lr": 0.001, "momentum": 0.9}), "adamw": (torch.optim.AdamW, {"lr": 0.0001})}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--mode", choices=["ddp", "zero"])
    parser.add_argument("--optimizer", choices=OPTIMIZERS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warm-up", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    net, inputs = MODELS[options.model]()
    targets = torch.randint(10, (len(inputs),))
    ddp = DistributedDataParallel(net)
    kind, arguments = OPTIMIZERS[options.optimizer]
    if options.mode == "zero":
        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=kind, **arguments)
    else:
        optimizer = kind(ddp.parameters(), **arguments)
    times, faults = [], 0
    for step in range(-options.warm_up, options.steps):
        if step == 0:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), targets).backward()
        optimizer.step()
        if step >= 0:
            times.append(time.perf_counter() - begin)
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / options.steps
    mine = torch.tensor([statistics.median(times), faults])
    dist.all_reduce(mine)
    step_s, faults = (mine / dist.get_world_size()).tolist()
    if dist.get_rank() == 0:
        print(json.dumps({"images_per_s": round(len(inputs) * dist.get_world_size() / step_s, 1),
                          "faults_per_step": round(faults, 1)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
