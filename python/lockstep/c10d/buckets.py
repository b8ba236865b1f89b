"""Gradients of torch's DistributedDataParallel in memory that the host's ranks reach."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from lockstep.c10d.process_group import ProcessGroup

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from lockstep import core

_LEAST_BYTES = 1 << 16  # below, reaching memory gains nothing over copying it


class _Buckets:
    """The communication hook: averages each bucket where it lies. Memory is registered when a bucket is first seen, and let go of when
    another one has come in its place."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._known: dict[int, tuple[int, int, core.Registered]] = {}  # by the bucket's number: address, bytes

    def average(self, _, bucket):  # torch would read hints, and not as text
        gradients = bucket.buffer()
        self._register(bucket.index(), gradients)
        work = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _register(self, index, gradients):
        place = gradients.data_ptr(), gradients.numel() * gradients.element_size()
        if self._known.get(index, (0, 0))[:2] == place:
            return
        self._known.pop(index, None)
        if gradients.device.type == "cpu" and place[1] >= _LEAST_BYTES:
            self._known[index] = *place, self._group.register(gradients)


def register_buckets(model: DistributedDataParallel) -> None:
    """The model's gradients, as DistributedDataParallel keeps them together, are in memory that the host's other ranks reach, and are
    averaged without copies. Call it on each rank, after DistributedDataParallel() and before the first backward pass; it takes the
    place of the model's communication hook. Pays with gradient_as_bucket_view=True; gradients on a GPU travel as without it.

    Raises TypeError for another model; ValueError where its group is not one of Lockstep's. A backward pass raises RuntimeError where
    there is no room for the gradients (LOCKSTEP_ARENA_BYTES).
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(f"register_buckets() is for DistributedDataParallel, not {type(model).__name__}")
    if not isinstance(model.process_group, ProcessGroup):
        raise ValueError("register_buckets(): the model's group is not over lockstep: init_process_group(\"lockstep\"), or "
                         "DistributedDataParallel(..., process_group=new_group(backend=\"lockstep\"))")
    model.register_comm_hook(None, _Buckets(model.process_group).average)
