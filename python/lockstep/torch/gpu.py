"""Calls that take tensors where they are on a GPU, in the order of torch's current stream."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lockstep import core

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND = "cuda"  # torch's name for such devices
_known: dict[tuple[int, int, int], bool] = {}  # by the world, the set and the device: whether its ranks' GPUs reach each other


class Place:
    """A GPU, and the stream there that was torch's current one: what is called comes after what it had got."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._stream = device, _current_stream(device)

    def for_calls(self) -> tuple[int, int]:
        """As core.begin() takes it: the device's number, the stream's handle."""
        return self.device.index, self._stream.cuda_stream

    def entered(self) -> torch.cuda.StreamContext:
        """While it is entered, the stream is the current one."""
        return _on_stream(self._stream)

    def let_follow(self) -> None:
        """What the current stream gets from now on comes after what this one has got."""
        current = _current_stream(self.device)
        if current != self._stream:
            current.wait_stream(self._stream)

    def synchronize(self) -> None:
        """Returns when all that the stream has got is through."""
        self._stream.synchronize()

    def require_own(self, tensor: torch.Tensor) -> None:
        """Raises ValueError for a tensor that is elsewhere."""
        if tensor.device != self.device:
            raise ValueError(f"a tensor of {tuple(tensor.shape)} on {tensor.device} in a call with one on {self.device}: all of a call's "
                             "tensors are on one device")


_current_stream, _on_stream = torch.cuda.current_stream, torch.cuda.stream


def place_of(number: int, tensor: torch.Tensor, dtype: int = core.U8, op: int | None = None) -> Place | None:
    """Where a call of set `number` takes this tensor, which every rank has; op: by which its elements, of this dtype, are combined. None:
    in main memory. Collective for the set's first tensor on a device, in the order of calls."""
    if tensor.device.type != KIND or (op is not None and not core.gpu_can_reduce(dtype, op)):
        return None
    key = core.worlds(), number, tensor.device.index
    if key not in _known:
        _known[key] = core.set_has_gpu(number, tensor.device.index)
    return Place(tensor.device) if _known[key] else None


def place_of_request(request: core.Request, tensors: Sequence[torch.Tensor]) -> Place | None:
    """Where a request by name takes these tensors; None: in main memory. What other ranks have does not matter."""
    device = tensors[0].device
    if device.type != KIND or not request.takes_gpu or any(tensor.device != device for tensor in tensors):
        return None
    return Place(device)
