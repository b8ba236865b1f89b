#!/usr/bin/env python3
"""Writes the files of this folder, with Python's torch: record.py FOLDER. They are small, and what is in them is told by
the tests that read them (lockstep/data/pth_file_test.cpp, lockstep/train/checkpoint/state_dict_test.cpp)."""
import os
import pathlib
import sys
from collections import OrderedDict

import torch


def counted(tensors):
    """Tensor number i is filled with i, i + 1/4, i + 1/2, ..."""
    with torch.no_grad():
        for i, tensor in enumerate(tensors):
            tensor.copy_((torch.arange(tensor.numel()) / 4 + i).view_as(tensor))


def model():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    counted(net.state_dict().values())
    return net.state_dict()


def data_parallel():
    net = torch.nn.Sequential(OrderedDict(module=torch.nn.Linear(3, 2)))
    counted(net.state_dict().values())
    return net.state_dict()


def types():
    """Three elements of each type, of the bytes 1, 2, 3, ..."""
    names = ("uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 uint16 uint32 uint64")
    tensors = OrderedDict()
    for name in names.split():
        dtype = getattr(torch, name)
        tensors[name] = torch.arange(1, 3 * dtype.itemsize + 1, dtype=torch.uint8).view(dtype)
    tensors["bool"] = torch.tensor([True, False, True])
    return tensors


def views():
    base = torch.arange(12.0).view(3, 4)
    return OrderedDict(turned=base.t(), inner=base[1:, 1:3], parameter=torch.nn.Parameter(base[0]),
                       repeated=torch.ones(1).expand(3, 5), empty=torch.empty(0, 3), scalar=torch.tensor(5))


def nested():
    group = {"lr": 0.1, "betas": (0.9, 0.999), "steps": 2**40, "below": -300, "name": "all", "params": [0, 1]}
    state = {0: {"step": torch.tensor(1.0), "momentum_buffer": None}}
    return {"epoch": 3, "model": OrderedDict(weight=torch.arange(3.0)),
            "optimizer": {"state": state, "param_groups": [group]}, "done": False}


class Call:
    """Pickled as a call of os.system."""

    def __reduce__(self):
        return os.system, ("echo this must never run >&2",)


def main():
    folder = pathlib.Path(sys.argv[1])
    contents = {"model": model(), "data_parallel": data_parallel(), "types": types(), "views": views(),
                "nested": nested(), "malicious": OrderedDict(weight=torch.ones(2), bias=Call()),
                "conjugated": OrderedDict(weight=torch.ones(2, dtype=torch.complex64).conj()),
                "float8": OrderedDict(weight=torch.ones(2).to(torch.float8_e4m3fn)), "tensor": torch.ones(2)}
    for name, content in contents.items():
        torch.save(content, folder / f"{name}.pth")
    torch.save(model(), folder / "before_1_6.pth", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
