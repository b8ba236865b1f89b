"""What torch's own DistributedDataParallel makes of the training in training_rank.cpp (action `losses`): the same model,
data and steps. Run it on each of two ranks:

    lockstep run -np 2 --no-prefix -- python torch_losses.py > torch_losses.txt

With --compare FILE it fails unless the losses are those in the file, which the tests compare Lockstep's with."""
import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 50, 16
SIZES = (8, 32, 32, 4)


def wave(count, factor, shift):
    return torch.sin(torch.arange(count, dtype=torch.float64) * factor + shift)


def losses(kind, zero=False):
    layers = []
    for number in range(len(SIZES) - 1):
        linear = torch.nn.Linear(SIZES[number], SIZES[number + 1])
        with torch.no_grad():
            linear.weight.copy_(wave(linear.weight.numel(), 0.7, number).view_as(linear.weight) * 0.3)
            linear.bias.copy_(wave(linear.bias.numel(), 0.3, number) * 0.1)
        layers += [linear, torch.nn.Tanh()]
    net = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]))
    name, options = {"sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
                     "adamw": (torch.optim.AdamW, {"lr": 0.01})}[kind]
    optimizer = (ZeroRedundancyOptimizer(net.parameters(), optimizer_class=name, **options) if zero
                 else name(net.parameters(), **options))
    found = []
    for step in range(STEPS):
        shift = step * 2 + dist.get_rank()
        x = wave(BATCH * SIZES[0], 0.37, shift).view(BATCH, SIZES[0]).float()
        y = torch.cos(x[:, :4] * 2)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        found.append(mean.item() / dist.get_world_size())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    columns = {"sgd": losses("sgd"), "adamw": losses("adamw"), "sgd_zero": losses("sgd", zero=True),
               "adamw_zero": losses("adamw", zero=True)}
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank != 0:
        return 0
    rows = list(zip(*columns.values()))
    if not options.compare:
        print(f"# Made by torch_losses.py with torch {torch.__version__.split('+')[0]}: mean loss of both ranks by step.")
        print(*columns)
        for row in rows:
            print(*(f"{loss:.9f}" for loss in row))
        return 0
    with open(options.compare) as file:
        recorded = [[float(word) for word in line.split()] for line in file.readlines()[2:]]
    worst = max(abs(a - b) / b for row, old in zip(rows, recorded, strict=True) for a, b in zip(row, old))
    print(f"largest relative difference to the recorded losses: {worst:.2e}")
    return 0 if worst <= 1e-5 else 1


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sys.exit(main())
