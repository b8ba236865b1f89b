"""A GPU for tests of lockstep with Python's torch where there is none: libtorch's made-up device on the stand-in's GPUs
(tests/gpu/fake_gpu_for_python.cpp), which this module makes known to torch, as "fake", and to lockstep.

LOCKSTEP_FAKE_GPU: the library; the stand-ins of CUDA and NCCL are found by LD_LIBRARY_PATH.
"""
import contextlib
import itertools
import os
import types

import torch

from lockstep.torch import gpu


class _Stream:
    """The default one, where all is done at once."""

    def __init__(self):
        self._calls = itertools.count()

    @property
    def cuda_stream(self):
        next(self._calls)
        return 0

    def synchronize(self):
        torch.ones(1, device=DEVICE).cpu()


def calls():
    """How many calls have been on the GPU."""
    return next(_the_stream._calls)


_the_stream = _Stream()
torch.utils.rename_privateuse1_backend("fake")
_module = types.ModuleType("torch.fake")
_module._lazy_init = lambda: None
_module.is_available = lambda: True
_module.current_device = lambda: 0
_module.device_count = lambda: 4
_module._is_in_bad_fork, _module.manual_seed_all = lambda: False, lambda seed: None
torch._register_device_module("fake", _module)
torch.ops.load_library(os.environ["LOCKSTEP_FAKE_GPU"])
gpu.KIND, gpu._current_stream, gpu._on_stream = "fake", lambda device: _the_stream, lambda stream: contextlib.nullcontext()
DEVICE = torch.device("fake:0")
