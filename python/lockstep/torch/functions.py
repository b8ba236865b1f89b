"""What ranks have to begin with alike: parameters, optimizers' states, any objects."""
from __future__ import annotations

import collections.abc
import ctypes
import io
import pickle
from typing import TYPE_CHECKING

import torch

from lockstep.common.process_sets import global_process_set
from lockstep.torch import mpi_ops

try:  # takes functions and classes of the main program, too
    import cloudpickle
except ImportError:
    cloudpickle = pickle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from lockstep.common.process_sets import ProcessSet


def broadcast_parameters(params: dict[str, Any] | Iterable[tuple[str | None, torch.Tensor | None]] | Iterable[torch.Tensor],
                         root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """The root's values, on all ranks. params: model.state_dict(), model.named_parameters(), or other pairs of name and tensor."""
    if isinstance(params, dict):
        pairs: Sequence[tuple[str | None, Any]] = sorted((name, tensor) for name, tensor in params.items() if torch.is_tensor(tensor))
    elif isinstance(params, collections.abc.Iterable):
        pairs = [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    with torch.no_grad():
        handles = [mpi_ops.broadcast_async_(tensor, root_rank, name, process_set) for name, tensor in pairs if tensor is not None]
        for handle in handles:
            mpi_ops.synchronize(handle)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """The root's state and options (learning rate, momentum, ...), on all ranks, also on such as have no state yet."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if not optimizer.state:  # as with Horovod, whose programs look at gradients from here on
        for parameter in (one for group in optimizer.param_groups for one in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    is_root = mpi_ops.rank() == root_rank
    state = broadcast_object(optimizer.state_dict() if is_root else None, root_rank, process_set=process_set)
    if is_root:
        return
    groups, options = optimizer.param_groups, [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    # Who has one of these, as a learning rate's scheduler, keeps it.
    for group, loaded, had in zip(groups, optimizer.param_groups, options):
        group.clear()
        group.update({**loaded, "params": had["params"]})
    optimizer.param_groups = groups


def _to_tensor(obj: Any) -> torch.Tensor:
    """By torch's own way, which takes tensors of any device, and several that share their memory, once."""
    try:
        file = io.BytesIO()
        torch.save(obj, file, pickle_module=pickle)
    except Exception:  # noqa: BLE001: whatever it is that pickle does not take
        file = io.BytesIO()
        torch.save(obj, file, pickle_module=cloudpickle)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _from_tensor(tensor: torch.Tensor) -> Any:
    content = (ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr())  # string_at() takes less than 2 GiB
    return torch.load(io.BytesIO(content), map_location="cpu", **_WHOLE)


# Ranks of one job trust each other: they run the same program.
_WHOLE = {"weights_only": False} if "weights_only" in torch.load.__code__.co_varnames else {}


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks. It has to be one that pickle (cloudpickle, where it is installed) takes."""
    name = name or "broadcast_object"
    is_root = mpi_ops.rank() == root_rank
    sent: Any = _to_tensor(obj) if is_root else None
    length = torch.tensor([sent.numel() if is_root else 0], dtype=torch.int64, device="cpu")
    mpi_ops.broadcast_(length, root_rank, name + ".length", process_set)
    if not is_root:
        sent = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    mpi_ops.broadcast_(sent, root_rank, name, process_set)
    return obj if is_root else _from_tensor(sent)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in their order."""
    name = name or "allgather_object"
    mine = _to_tensor(obj)
    lengths = mpi_ops.allgather(torch.tensor([mine.numel()], dtype=torch.int64, device="cpu"), name + ".lengths", process_set)
    everything = mpi_ops.allgather(mine, name, process_set)
    return [_from_tensor(part) for part in everything.split(lengths.tolist())]
