"""The least there is to data parallelism: one program starts its own processes; each runs a forward, a backward and a step with samples
of its own, and all end with the same model.

  python3 examples/python/spawn_toy.py
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import lockstep.c10d  # noqa: F401  not needed where the wheel is installed, from torch 2.5 on


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def train(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("lockstep", rank=rank, world_size=world_size)
    torch.manual_seed(rank)  # other samples on each rank, and other weights, which the wrapper makes rank 0's
    model = DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()

    mine = nn.utils.parameters_to_vector(model.parameters()).detach()
    of_all = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(of_all, mine)
    if not all(torch.equal(mine, one) for one in of_all):
        raise RuntimeError("the replicas differ")
    print(f"rank {rank} of {world_size}: its own loss is {loss:.4f}, and the replicas are equal", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    mp.spawn(train, args=(ranks, free_port()), nprocs=ranks)
