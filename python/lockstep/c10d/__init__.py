"""torch.distributed over Lockstep: `init_process_group("lockstep")`.

    import lockstep.c10d     # where the wheel is installed, torch finds it by itself (2.5 and newer)
    torch.distributed.init_process_group("lockstep")

DistributedDataParallel, FSDP2, functional and object collectives, new_group(), checkpoints then run over our collectives. Tensors may
be of any type and layout, on the CPU or a GPU. docs/python.md says what differs from Gloo.
"""
from __future__ import annotations

import torch.distributed


def _make(options, _):
    from lockstep.c10d import process_group  # the library is loaded when it is used: this module is imported along with torch

    return process_group.make(options)


def register() -> None:
    """Makes the name known to torch. Again, or where torch has no torch.distributed: nothing."""
    if not torch.distributed.is_available():
        return
    backends = torch.distributed.Backend
    if "LOCKSTEP" in backends._plugins:
        return
    try:
        backends.register_backend("lockstep", _make, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # torch 2.0 has no devices
        backends.register_backend("lockstep", _make, extended_api=True)


register()


def __getattr__(name):
    if name == "LockstepError":
        from lockstep.c10d.work import LockstepError

        return LockstepError
    if name == "register_buckets":
        from lockstep.c10d.buckets import register_buckets

        return register_buckets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
