"""Calls that take tensors where they are on a GPU, in the order of torch's current stream."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lockstep import core

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KIND = "cuda"  # torch's name for such devices
_current_stream, _on_stream, _new_stream, _use_on, _on_device = (torch.cuda.current_stream, torch.cuda.stream, torch.cuda.Stream,
                                                                 torch.Tensor.record_stream, torch.cuda.device)
_streams: dict[tuple[int, torch.device], torch.cuda.Stream] = {}  # of each set's calls, on each GPU
_for_results: dict[torch.device, torch.cuda.Stream] = {}
_known: dict[tuple[int, int, int], bool] = {}  # by the world, the set and the device: whether its ranks' GPUs reach each other


class Place:
    """A GPU, and a stream there on which a set's calls begin and end: what the program's own gets meanwhile goes on beside them, until it is
    let_follow(). What is called comes after what torch's current stream has got."""

    def __init__(self, number: int, device: torch.device) -> None:
        if (number, device) not in _streams:
            _streams[number, device] = _new_stream(device)
        self.device, self._stream = device, _streams[number, device]

    def begin(self, kept: Iterable[torch.Tensor | None]) -> tuple[int, int]:
        """As core.begin() takes it: the device's number, the stream's handle. kept: what the call uses, which torch may give to others
        only after that."""
        self._stream.wait_stream(_current_stream(self.device))
        for tensor in kept:
            if tensor is not None:
                self.use(tensor)
        return self.device.index, self._stream.cuda_stream

    def use(self, tensor: torch.Tensor) -> None:
        """Torch gives its memory to others only after what the calls' stream has got."""
        _use_on(tensor, self._stream)

    def entered(self) -> torch.cuda.StreamContext:
        """While it is entered, the stream is the current one."""
        return _on_stream(self._stream)

    def mark(self) -> torch.cuda.Event:
        """Where the stream is."""
        return self._stream.record_event()

    def let_follow(self) -> None:
        """What torch's current stream gets from now on comes after what the calls' stream has got."""
        _current_stream(self.device).wait_stream(self._stream)

    def synchronize(self) -> None:
        """Returns when all calls are over that were waited for."""
        self._stream.synchronize()

    def require_own(self, tensor: torch.Tensor) -> None:
        """Raises ValueError for a tensor that is elsewhere."""
        if tensor.device != self.device:
            raise ValueError(f"a tensor of {tuple(tensor.shape)} on {tensor.device} in a call with one on {self.device}: all of a call's "
                             "tensors are on one device")


def place_of(number: int, tensor: torch.Tensor, dtype: int = core.U8, op: int | None = None) -> Place | None:
    """Where a call of set `number` takes this tensor, which every rank has; op: by which its elements, of this dtype, are combined. None:
    in main memory. Collective for the set's first tensor on a device, in the order of calls."""
    if tensor.device.type != KIND or (op is not None and not core.gpu_can_reduce(dtype, op)):
        return None
    key = core.worlds(), number, tensor.device.index
    if key not in _known:
        _known[key] = core.set_has_gpu(number, tensor.device.index)
    return Place(number, tensor.device) if _known[key] else None


def stream_of_request(request: core.Request, tensors: Sequence[torch.Tensor]) -> torch.cuda.Stream | None:
    """The stream that is torch's current one where a request by name takes these tensors on their GPU; None: it takes them in main memory.
    What other ranks have does not matter."""
    device = tensors[0].device
    if device.type != KIND or not request.takes_gpu() or any(tensor.device != device for tensor in tensors):
        return None
    return _current_stream(device)


def bytes_for_result(size: int, device: torch.device) -> torch.Tensor:
    """So many bytes that nothing on the device uses any more, from any thread. Who waits for the call uses them by used_now()."""
    # Memory is given in the order of a stream. Not of the program's: a call that came after what is there by then could wait for a call
    # that comes after it on another rank.
    with _on_device(device):
        if device not in _for_results:
            _for_results[device] = _new_stream(device)
        stream = _for_results[device]
        with _on_stream(stream):
            made = torch.empty(size, dtype=torch.uint8, device=device)
        stream.synchronize()  # torch's streams are few: it may be another's, too
    return made


def used_now(tensor: torch.Tensor) -> torch.Tensor:
    """Torch gives its memory to others only after what its current stream gets until it is given back. Returns it."""
    _use_on(tensor, _current_stream(tensor.device))
    return tensor


def current_stream(device: torch.device) -> torch.cuda.Stream:
    """Torch's."""
    return _current_stream(device)
