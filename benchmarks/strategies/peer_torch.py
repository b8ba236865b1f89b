#!/usr/bin/env python3
"""strategy_step.cpp's steps in Python's torch, over Gloo, a rank of them:

  peer_torch.py pipeline --cut 6,7        torch.distributed.pipelining, 1F1B
  peer_torch.py tensor_parallel           ColwiseParallel, RowwiseParallel
  peer_torch.py parameter_server          torch.distributed.rpc: rank 0 has the variables and the optimizer
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

from stepping import add_options, median_of, say


class BasicBlock(nn.Module):
    def __init__(self, wide_in, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(wide_in, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = (nn.Identity() if stride == 1 and wide_in == out else
                           nn.Sequential(nn.Conv2d(wide_in, out, 1, stride, bias=False), nn.BatchNorm2d(out)))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


def resnet18():
    """The layers of strategy_step.cpp's resnet18()."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1))]
    wide_in = 64
    for out in (64, 128, 256, 512):
        layers += [BasicBlock(wide_in, out, 1 if out == 64 else 2), BasicBlock(out, out, 1)]
        wide_in = out
    return [*layers, nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()), nn.Linear(512, 10)]


def pipeline(options):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cut = [int(word) for word in options.cut.split(",")]
    layers = resnet18()
    mine = nn.Sequential(*(layers[:cut[0]] if rank == 0 else layers[cut[0]:]))
    stage = PipelineStage(mine, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=options.micro_batches, loss_fn=nn.CrossEntropyLoss())
    sgd = torch.optim.SGD(mine.parameters(), 0.01)
    batch = options.batch or 64
    images, labels = torch.randn(batch, 3, 64, 64), torch.randint(10, (batch,))

    def step():
        sgd.zero_grad()
        if rank == 0:
            schedule.step(images)
        else:
            schedule.step(target=labels, losses=[])
        sgd.step()
        dist.barrier()

    seconds = median_of(options, step)
    if rank == 0:
        say(options, seconds)


def tensor_parallel(options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers, width = [], options.width
    for _ in range(4):
        layers += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    net = nn.Sequential(*layers)
    plan = {}
    for block in range(4):
        plan[str(3 * block)], plan[str(3 * block + 2)] = ColwiseParallel(), RowwiseParallel()
    net = parallelize_module(net, mesh, plan)
    sgd = torch.optim.SGD(net.parameters(), 0.01)
    x = torch.randn(options.batch or 256, width)

    def step():
        sgd.zero_grad()
        net(x).pow(2).mean().backward()
        sgd.step()

    seconds = median_of(options, step)
    if dist.get_rank() == 0:
        say(options, seconds)


VALUES, OPTIMIZER = [], []


def give():
    return [value.detach() for value in VALUES]


def take(gradients):
    for value, gradient in zip(VALUES, gradients):
        value.grad = gradient
    OPTIMIZER[0].step()


def parameter_server(options):
    from torch.distributed import rpc
    rank = int(os.environ["RANK"])
    if rank == 0:
        VALUES.extend(nn.Parameter(torch.zeros(1000, 1000)) for _ in range(10))
        OPTIMIZER.append(torch.optim.SGD(VALUES, 0.01, fused=True))
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=2)
    if rank == 1:
        mine = [torch.zeros(1000, 1000) for _ in range(10)]
        gradients = [torch.ones(1000, 1000) for _ in range(10)]

        def step():
            for value, new in zip(mine, rpc.rpc_sync("rank0", give)):
                value.copy_(new)
            rpc.rpc_sync("rank0", take, args=(gradients,))

        say(options, median_of(options, step))
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["pipeline", "tensor_parallel", "parameter_server"])
    add_options(parser)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--cut", default="6,7")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    {"pipeline": pipeline, "tensor_parallel": tensor_parallel, "parameter_server": parameter_server}[options.mode](options)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
