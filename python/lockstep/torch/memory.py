"""Tensors whose memory the other ranks of a host reach."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lockstep import core
from lockstep.common.process_sets import global_process_set

if TYPE_CHECKING:
    from types import TracebackType

    from lockstep.common.process_sets import ProcessSet


class RegisteredMemory:
    """What register_memory() gives. The tensor's memory is registered until close(), or as long as this object lives, which keeps it."""

    def __init__(self, tensor: torch.Tensor, process_set: ProcessSet) -> None:
        self._registered: core.Registered | None = core.Registered(process_set.number(), tensor.data_ptr(),
                                                                   tensor.numel() * tensor.element_size(), kept=tensor.detach())

    def close(self) -> None:
        """The memory is the process's own again, with what is in it. Not while an operation with it is under way."""
        self._registered = None

    def __enter__(self) -> RegisteredMemory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def register_memory(tensor: torch.Tensor, process_set: ProcessSet = global_process_set) -> RegisteredMemory:
    """From now on the other ranks of this host reach the tensor's memory, so that collectives need not copy it: those of this module, of
    all process sets, and of torch.distributed over lockstep. Pays for tensors of 64 KiB and more that are used again and again.

    Each rank registers what it likes. No thread writes to the tensor during this call, nor during close(). Raises ValueError for one that is
    not on the CPU, or whose elements do not lie one after another; for no elements; for memory that is registered already or is not the
    process's own; and where there is no room for as much memory again (LOCKSTEP_ARENA_BYTES).
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.is_contiguous():
        raise ValueError("register_memory() is for tensors on the CPU whose elements lie one after another; this one is on "
                         f"{tensor.device}, {tensor.layout}" + (f" with strides {tuple(tensor.stride())}" if tensor.layout == torch.strided
                                                                else ""))
    return RegisteredMemory(tensor, process_set)
