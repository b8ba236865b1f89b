#!/usr/bin/env python3
"""read_resnet.py FILE: whether FILE is a state dict of torchvision's resnet18, as Python's torch reads it. Writes it again
as Python's torch does, with the names that its DistributedDataParallel has."""
import sys

import torch

state = torch.load(sys.argv[1], weights_only=True)
assert len(state) == 122, len(state)  # of torchvision.models.resnet18()
shapes = {"conv1.weight": (64, 3, 7, 7), "bn1.running_var": (64,), "layer1.0.conv1.weight": (64, 64, 3, 3),
          "layer2.0.downsample.0.weight": (128, 64, 1, 1), "layer2.0.downsample.1.bias": (128,),
          "layer4.1.conv2.weight": (512, 512, 3, 3), "layer4.1.bn2.num_batches_tracked": (),
          "fc.weight": (1000, 512), "fc.bias": (1000,)}
for name, shape in shapes.items():
    assert tuple(state[name].shape) == shape, (name, state[name].shape)
assert all(torch.isfinite(tensor).all() for tensor in state.values())
assert state["bn1.num_batches_tracked"] == 2, state["bn1.num_batches_tracked"]
torch.save({"module." + name: tensor for name, tensor in state.items()}, sys.argv[1])
