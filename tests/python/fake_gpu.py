"""A GPU for tests of lockstep with Python's torch where there is none: libtorch's made-up device on the stand-in's GPUs
(tests/gpu/fake_gpu_for_python.cpp), which this module makes known to torch, as "fake", and to lockstep.

Tensors compute at once, after what the device's default stream has got, so who does not wait for another stream there sees old values.
LOCKSTEP_FAKE_GPU: the library; the stand-ins of CUDA and NCCL are found by LD_LIBRARY_PATH.
"""
import contextlib
import ctypes
import os
import types

import torch

from lockstep.torch import gpu

_cuda = ctypes.CDLL("libcuda.so.1")
_context = ctypes.c_void_p()
_calls = 0


def _check(result):
    assert result == 0, f"the stand-in of CUDA says {result}"


@contextlib.contextmanager
def _on_device():
    if not _context:
        _check(_cuda.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0))
    _check(_cuda.cuCtxPushCurrent_v2(_context))
    try:
        yield
    finally:
        _check(_cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))


class _Event:
    def __init__(self, stream):
        self._handle = ctypes.c_void_p()
        with _on_device():
            _check(_cuda.cuEventCreate(ctypes.byref(self._handle), 0))
            _check(_cuda.cuEventRecord(self._handle, stream))

    def query(self):
        with _on_device():
            return _cuda.cuEventQuery(self._handle) == 0

    def make_wait(self, stream):
        with _on_device():
            _check(_cuda.cuStreamWaitEvent(stream, self._handle, 0))

    def __del__(self):
        _cuda.cuEventDestroy_v2(self._handle)


class _Stream:
    def __init__(self, handle=None):
        self._handle = handle

    @property
    def cuda_stream(self):
        global _calls
        _calls += 1
        return self._handle.value if self._handle else 0

    def wait_stream(self, other):
        if other is not self:
            other.record_event().make_wait(self._handle)

    def record_event(self):
        return _Event(self._handle)

    def synchronize(self):
        with _on_device():
            _check(_cuda.cuStreamSynchronize(self._handle))


def _new_stream(_):
    handle = ctypes.c_void_p()
    with _on_device():
        _check(_cuda.cuStreamCreateWithPriority(ctypes.byref(handle), 1, 0))
    return _Stream(handle)


@contextlib.contextmanager
def _on_stream(stream):
    stream.synchronize()  # what is computed then is computed at once
    yield


def calls():
    """How many calls were given to the GPU. By name they may still have gone through main memory, of which the core says so."""
    return _calls


torch.utils.rename_privateuse1_backend("fake")
_module = types.ModuleType("torch.fake")
_module._lazy_init = lambda: None
_module.is_available = lambda: True
_module.current_device = lambda: 0
_module.device_count = lambda: 4
_module._is_in_bad_fork, _module.manual_seed_all = lambda: False, lambda seed: None
torch._register_device_module("fake", _module)
torch.ops.load_library(os.environ["LOCKSTEP_FAKE_GPU"])
_default = _Stream()
gpu.KIND, gpu._current_stream, gpu._on_stream, gpu._new_stream = "fake", lambda device: _default, _on_stream, _new_stream
gpu._on_device = lambda device: contextlib.nullcontext()
gpu._use_on = lambda tensor, stream: None  # memory is not used again before the default stream is through
DEVICE = torch.device("fake:0")
