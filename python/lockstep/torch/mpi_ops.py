"""Collectives on tensors, found by their names, under Horovod's names.

Each `_async` function returns a handle, for poll() and synchronize(); those that end in `_` work in place. Tensors may be of any
torch type that has an element type here, of any shape and layout. Operations on CUDA tensors are on their GPU, where the ranks' GPUs
reach each other; other tensors that are not on the CPU are copied there and back.
"""
from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad as _forward_ad

from lockstep import core
from lockstep.common.basics import (  # noqa: F401
    cross_rank, cross_size, init, is_homogeneous, is_initialized, local_rank, local_size, rank, shutdown, size)
from lockstep.common.process_sets import global_process_set, process_set_ids_and_ranks
from lockstep.common.reductions import Adasum, Average, Max, Min, Product, Sum, op_of  # noqa: F401
from lockstep.common.reductions import reduce_op as reduce_op_of
from lockstep.torch.compression import Compression
from lockstep.torch.gpu import bytes_for_result, stream_of_request, used_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from lockstep.common.compression import Compressor
    from lockstep.common.process_sets import ProcessSet

_DTYPES = {torch.uint8: core.U8, torch.int8: core.I8, torch.int16: core.I16, torch.int32: core.I32, torch.int64: core.I64,
           torch.float16: core.F16, torch.bfloat16: core.BF16, torch.float32: core.F32, torch.float64: core.F64,
           torch.bool: core.BOOL, torch.complex64: core.COMPLEX64, torch.complex128: core.COMPLEX128}


_increment_version = getattr(torch.autograd.graph, "increment_version", lambda tensor: None)  # since torch 2.1


class _Basics:
    """What programs reach for by mpi_ops._basics."""

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        return process_set_ids_and_ranks()


_basics = _Basics()


def _dtype_of(tensor: torch.Tensor) -> int:
    found = _DTYPES.get(tensor.dtype)
    if found is None:
        raise ValueError(f"tensors of {tensor.dtype} are not taken; known are {', '.join(map(str, _DTYPES))}")
    return found


def _require_dense(tensor: torch.Tensor, what: str) -> None:
    if tensor.is_sparse:
        raise ValueError(f"{what} on a sparse tensor: use sparse_allreduce_async(), or to_dense()")


# ---- Handles ----

class _Handle:
    """An operation under way: its Work, and what makes the result when it is over."""

    def __init__(self, work: core.Work | _Several, result: Callable[[Any], Any]) -> None:
        self.work, self.result = work, result


class _Several:
    """The Work of operations that are one for the program; their results wait for them."""

    def __init__(self, handles: Iterable[int]) -> None:
        self._handles = list(handles)

    def test(self) -> bool:
        return all(poll(handle) for handle in self._handles)

    def wait(self) -> None:
        pass


_handles: dict[int, _Handle] = {}
_numbers = itertools.count(1)
_automatic: dict[tuple[int | None, str], itertools.count[int]] = {}
_mutex = threading.Lock()


def _enter(work: core.Work | _Several, result: Callable[[Any], Any]) -> int:
    number = next(_numbers)
    _handles[number] = _Handle(work, result)
    return number


def _name_of(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """Names that are left out are counted for each set, in the order of calls; its ranks have to leave out the same ones."""
    if name is not None:
        return f"{kind}.{name}"
    with _mutex:
        counter = _automatic.setdefault((process_set.process_set_id, kind), itertools.count(1))
    return f"{kind}.noname.{next(counter)}"


def _of_gradient(name: str | None) -> str | None:
    return None if name is None else name + ".gradient"


def reset_names() -> None:
    """After shutdown(): the next world's ranks begin to count anew."""
    _automatic.clear()


def poll(handle: int) -> bool:
    """Whether it is over, so that synchronize() does not wait."""
    if handle not in _handles:
        raise ValueError(f"handle {handle} is not known, or was synchronized")
    return _handles[handle].work.test()


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, and returns its result; None for a handle that is known no more."""
    if handle not in _handles:
        return None
    found = _handles[handle]
    try:
        found.work.wait()
    except Exception:
        _handles.pop(handle, None)
        raise  # where it was interrupted it goes on, and may be waited for again
    _handles.pop(handle, None)
    return found.result(found.work)


# ---- What all operations do with tensors ----

_CPU = torch.device("cpu")


def _place_on(stream: torch.cuda.Stream | None, device: torch.device) -> tuple[int, int] | None:
    """As core.submit_request() takes it."""
    return None if stream is None else (device.index, stream.cuda_stream)


def _is_ready(tensor: torch.Tensor, device: torch.device = _CPU) -> bool:
    """Whether C reads and writes it as it is, where a call is on that device."""
    return tensor.device == device and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _ready(tensor: torch.Tensor, device: torch.device = _CPU) -> torch.Tensor:
    """As C reads it: there, with its elements one after another. Keeps the memory, whatever becomes of the tensor."""
    tensor = tensor.detach()
    return tensor if _is_ready(tensor, device) else tensor.to(device).resolve_conj().resolve_neg().contiguous()


def _written_back(tensor: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """`tensor` with what has come into `written`, which is it itself where C could write there."""
    if written.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(written.view(tensor.shape))
    else:
        _increment_version(tensor)
    return tensor


def _of_bytes(given: torch.Tensor, like: torch.Tensor, shape: Iterable[int]) -> torch.Tensor:
    """They, as a tensor of its own: autograd lets nobody write to a view of what an operation has made."""
    return given.view(like.dtype).view(*shape).detach()


def _own_output(work: core.Work, like: torch.Tensor, row_shape: Iterable[int]) -> tuple[torch.Tensor, list[int]]:
    """What the core has made, as a tensor that keeps it; and how many rows are of which rank."""
    buffer, size, rows = work.output_buffer()
    shape = (sum(rows), *row_shape)
    if size == 0:
        made = torch.empty(shape, dtype=like.dtype)
    else:
        made = _of_bytes(torch.frombuffer(buffer, dtype=torch.uint8, count=size), like, shape)
    return made.to(like.device), rows


def _begin_with_output(request: core.Request, tensor: torch.Tensor, rows: Sequence[int] = ()) -> tuple[
        core.Work, Callable[[core.Work], tuple[torch.Tensor, list[int]]]]:
    """Of the tensor, whose result has as many rows as become known. Returns its Work, and what makes of that, when it is over, the result
    and how many rows are of which rank."""
    row_shape = tensor.shape[1:]
    stream = stream_of_request(request, [tensor])
    given = _ready(tensor, tensor.device if stream else _CPU)
    if stream is None:
        work = core.submit_request(request, [given.data_ptr()], rows, given)
        return work, lambda done: _own_output(done, tensor, row_shape)
    made: list[torch.Tensor] = []

    def make(size: int) -> int:
        made.append(bytes_for_result(size, tensor.device))
        return made[0].data_ptr()

    def result(done: core.Work) -> tuple[torch.Tensor, list[int]]:
        received = done.output()[2]
        return _of_bytes(used_now(made[0]), tensor, (sum(received), *row_shape)), received

    return core.submit_request(request, [given.data_ptr()], rows, given, _place_on(stream, tensor.device), make), result


def _begin_all_reduce(kind, tensors, outputs, name, op, prescale_factor, postscale_factor, process_set):
    """In place in what `outputs` hold as C writes it; the result: `outputs`."""
    for tensor in tensors:
        _require_dense(tensor, "allreduce")
    request = core.request(process_set.number(), _name_of(kind, name, process_set), core.NAMED_ALL_REDUCE, dtype=_dtype_of(tensors[0]),
                           reduce_op=reduce_op_of(op), prescale=prescale_factor, postscale=postscale_factor,
                           shapes=tuple(tuple(output.shape) for output in outputs))
    stream = stream_of_request(request, outputs)
    device = outputs[0].device if stream else _CPU
    written = []
    for tensor, output in zip(tensors, outputs):
        if tensor is output:
            written.append(_ready(output, device))
        else:
            written.append(output if output.device == device else _ready(tensor, device))
    work = core.submit_request(request, [w.data_ptr() for w in written], kept=written, place=_place_on(stream, device))
    return _enter(work, lambda _: [_written_back(output, w) for output, w in zip(outputs, written)])


def _begin_grouped(tensors, outputs, name, *arguments):
    """One operation for each type, and one handle."""
    if not tensors:
        raise ValueError("a grouped allreduce of no tensors")
    by_type = {}
    for index, tensor in enumerate(tensors):
        by_type.setdefault(tensor.dtype, []).append(index)
    if len(by_type) == 1:
        return _begin_all_reduce("grouped_allreduce", tensors, outputs, name, *arguments)
    name = _name_of("several", name, arguments[-1])
    handles = {dtype: _begin_all_reduce("grouped_allreduce", [tensors[i] for i in indices], [outputs[i] for i in indices],
                                        f"{name}.{dtype}", *arguments) for dtype, indices in by_type.items()}

    def result(_):
        made = list(outputs)
        for dtype, indices in by_type.items():
            for index, one in zip(indices, synchronize(handles[dtype])):
                made[index] = one
        return made

    return _enter(_Several(handles.values()), result)


def _copies(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    for tensor in tensors:
        _require_dense(tensor, "an operation")
    return [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors]


# ---- allreduce ----

def _first(handle: int) -> int:
    found = _handles[handle]
    result = found.result
    found.result = lambda work: result(work)[0]
    return handle


def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: int | None = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """The tensors of all ranks combined, of the same shape; a handle. `op`: Average (the default), Sum, Min, Max, Product."""
    return _first(_begin_all_reduce("allreduce", [tensor], _copies([tensor]), name, op_of(average, op), prescale_factor,
                                    postscale_factor, process_set))


def allreduce_async_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: int | None = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    return _first(_begin_all_reduce("allreduce", [tensor], [tensor], name, op_of(average, op), prescale_factor, postscale_factor,
                                    process_set))


def allreduce_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: int | None = None,
               prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensors of all ranks combined, in place. Returns `tensor`."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *arguments: Any) -> torch.Tensor:
        ctx.arguments = arguments
        return synchronize(allreduce_async(tensor, None, *arguments))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        name, op, prescale, postscale, process_set = ctx.arguments
        if op not in (Average, Sum):
            raise NotImplementedError("only averages and sums have a gradient")
        return (allreduce(gradient, name=_of_gradient(name), op=op, prescale_factor=prescale, postscale_factor=postscale,
                          process_set=process_set), *[None] * 5)


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
              compression: type[Compressor] = Compression.none, op: int | None = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensors of all ranks combined, of the same shape. Has a gradient."""
    compressed, context = compression.compress(tensor)
    arguments = (name, op_of(average, op), prescale_factor, postscale_factor, process_set)
    if (compressed.requires_grad and torch.is_grad_enabled()) or _forward_ad._current_level >= 0:
        made = _AllReduce.apply(compressed, *arguments)
    else:
        made = synchronize(allreduce_async(compressed, None, *arguments))
    return compression.decompress(made, context)


def grouped_allreduce_async(tensors: Iterable[torch.Tensor], average: bool | None = None, name: str | None = None,
                            op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    """As allreduce_async, of several tensors, none of which begins before all are there on all ranks."""
    tensors = list(tensors)
    return _begin_grouped(tensors, _copies(tensors), name, op_of(average, op), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(tensors: Iterable[torch.Tensor], average: bool | None = None, name: str | None = None,
                             op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    tensors = list(tensors)
    return _begin_grouped(tensors, tensors, name, op_of(average, op), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(tensors: Iterable[torch.Tensor], average: bool | None = None, name: str | None = None, op: int | None = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """As grouped_allreduce, in place. Returns the tensors."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))


class _GroupedAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.arguments = name, op, prescale, postscale, process_set
        return tuple(synchronize(grouped_allreduce_async(tensors, None, *ctx.arguments)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, op, prescale, postscale, process_set = ctx.arguments
        made = grouped_allreduce(gradients, name=_of_gradient(name), op=op, prescale_factor=prescale, postscale_factor=postscale,
                                 process_set=process_set)
        return (*[None] * 5, *made)


def grouped_allreduce(tensors: Iterable[torch.Tensor], average: bool | None = None, name: str | None = None,
                      compression: type[Compressor] = Compression.none, op: int | None = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """As allreduce, of several tensors; all ranks give as many. Raises ValueError for none. Has a gradient."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("a grouped allreduce of no tensors")
    compressed, contexts = zip(*map(compression.compress, tensors))
    made = _GroupedAllReduce.apply(name, op_of(average, op), prescale_factor, postscale_factor, process_set, *compressed)
    return [compression.decompress(one, context) for one, context in zip(made, contexts)]


def sparse_allreduce_async(tensor: torch.Tensor, name: str, op: int,
                           process_set: ProcessSet = global_process_set) -> Callable[[], torch.Tensor]:
    """A sparse tensor of the sums (op=Sum) or averages of all ranks' values: returns a function that waits and returns it."""
    tensor = tensor if tensor.is_coalesced() else tensor.coalesce()
    indices = allgather_async(tensor._indices().transpose(0, 1).contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor._values(), f"{name}.values", process_set)

    def finish():
        all_values, all_indices = synchronize(values), synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        if all_indices.dim() == 0 or all_values.dim() == 0:
            return torch.sparse_coo_tensor(size=tensor.size(), dtype=tensor.dtype)
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, tensor.size())

    return finish


# ---- allgather ----

def _begin_all_gather(kind: str, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> int:
    _require_dense(tensor, "allgather")
    if tensor.dim() == 0:
        tensor = tensor.view(1)
    request = core.request(process_set.number(), _name_of(kind, name, process_set), core.NAMED_ALL_GATHER, dtype=_dtype_of(tensor),
                           shapes=(tuple(tensor.shape[1:]),))
    work, result = _begin_with_output(request, tensor, [tensor.shape[0]])
    return _enter(work, lambda done: result(done)[0])


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """The tensors of all ranks one after another along the first dimension, in which they may differ; a handle."""
    return _begin_all_gather("allgather", tensor, name, process_set)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.rows, ctx.shape, ctx.process_set, ctx.name = (tensor.shape[0] if tensor.dim() else 1), tensor.shape, process_set, name
        return synchronize(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        name = _of_gradient(ctx.name)
        summed = allreduce(gradient, name=name, op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), name=None if name is None else name + ".rows", process_set=ctx.process_set)
        before = int(rows[:ctx.process_set.rank()].sum())
        return summed.narrow(0, before, ctx.rows).view(ctx.shape), None, None


def allgather(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensors of all ranks one after another along the first dimension, in which they may differ. Has a gradient."""
    return _AllGather.apply(tensor, name, process_set)


def _several(handles: list[int]) -> int:
    """One handle for all of them."""
    return _enter(_Several(handles), lambda _: [synchronize(handle) for handle in handles])


def grouped_allgather_async(tensors: Iterable[torch.Tensor], name: str | None = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """As allgather_async, of several tensors, and one handle."""
    group = _name_of("grouped_allgather", name, process_set)
    return _several([_begin_all_gather("grouped_allgather", tensor, f"{group}.{index}", process_set)
                     for index, tensor in enumerate(tensors)])


def grouped_allgather(tensors: Iterable[torch.Tensor], name: str | None = None,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """As allgather, of several tensors. Has a gradient."""
    group = _name_of("grouped_allgather", name, process_set)
    return [allgather(tensor, f"{group}.{index}", process_set) for index, tensor in enumerate(tensors)]


# ---- broadcast ----

def _begin_broadcast(tensor: torch.Tensor, output: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> int:
    _require_dense(tensor, "broadcast")
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast from rank {root_rank}, which is not in {process_set}")
    root = process_set.ranks.index(root_rank)
    request = core.request(process_set.number(), _name_of("broadcast", name, process_set), core.NAMED_BROADCAST, dtype=_dtype_of(output),
                           root=root, shapes=(tuple(output.shape),))
    stream = stream_of_request(request, [output])
    written = _ready(output, output.device if stream else _CPU)
    work = core.submit_request(request, [written.data_ptr()], kept=written, place=_place_on(stream, output.device))
    return _enter(work, lambda _: _written_back(output, written))


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """The root's tensor, on all ranks; a handle. root_rank: in the world."""
    return _begin_broadcast(tensor, _copies([tensor])[0], root_rank, name, process_set)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    return _begin_broadcast(tensor, tensor, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor, on all ranks, in place. Returns `tensor`."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = root_rank, name, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        root_rank, name, process_set = ctx.arguments
        summed = allreduce(gradient, name=_of_gradient(name), op=Average, process_set=process_set)
        return summed if rank() == root_rank else summed * 0, None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor, on all ranks. Has a gradient."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# ---- alltoall ----

def _rows_to_send(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None, process_set: ProcessSet) -> list[int]:
    """How many rows go to each rank: `splits`, or as many to each."""
    _require_dense(tensor, "alltoall")
    if tensor.dim() == 0:
        raise ValueError("alltoall of a tensor without dimensions")
    ranks: Any = process_set.size()
    if splits is None:
        if tensor.shape[0] % ranks != 0:
            raise ValueError(f"alltoall without splits: the first dimension, {tensor.shape[0]}, is no multiple of {ranks} ranks")
        return [tensor.shape[0] // ranks] * ranks
    rows = [int(split) for split in splits]
    if len(rows) != ranks or sum(rows) > tensor.shape[0] or min(rows) < 0:
        raise ValueError(f"splits {rows}: there have to be {ranks}, of at most {tensor.shape[0]} rows together")
    return rows


def _begin_all_to_all(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None, name: str | None,
                      process_set: ProcessSet) -> int:
    rows = _rows_to_send(tensor, splits, process_set)
    request = core.request(process_set.number(), _name_of("alltoall", name, process_set), core.NAMED_ALL_TO_ALL, dtype=_dtype_of(tensor),
                           shapes=(tuple(tensor.shape[1:]),))
    work, made = _begin_with_output(request, tensor, rows)

    def result(done):
        output, received = made(done)
        return output if splits is None else (output, torch.tensor(received, dtype=torch.int32, device="cpu"))

    return _enter(work, result)


def alltoall_async(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None = None, name: str | None = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """splits[r] rows to rank r, the first ones to rank 0; what comes from all, in their order; a handle. With `splits` the result
    is a pair: the rows, and how many are of each rank."""
    return _begin_all_to_all(tensor, splits, name, process_set)


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None, name: str | None,
                process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor]:
        rows = _rows_to_send(tensor, splits, process_set)
        output, received = synchronize(alltoall_async(tensor, rows, name, process_set))
        ctx.arguments = received, name, process_set, tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[Any, ...]:
        received, name, process_set, rows = ctx.arguments
        sent = alltoall(gradient, received, _of_gradient(name), process_set)[0]
        if sent.shape[0] < rows:  # the others went nowhere
            sent = torch.cat([sent, sent.new_zeros((rows - sent.shape[0], *sent.shape[1:]))])
        return sent, None, None, None


def alltoall(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None = None, name: str | None = None,
             process_set: ProcessSet = global_process_set) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """As alltoall_async, waited for. Has a gradient."""
    output, received = _AllToAll.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


# ---- reducescatter ----

def _begin_reduce_scatter(kind: str, tensor: torch.Tensor, name: str | None, op: int, prescale_factor: float,
                          postscale_factor: float, process_set: ProcessSet) -> int:
    _require_dense(tensor, "reducescatter")
    if op not in (Average, Sum):
        raise ValueError("reducescatter has op=Average and op=Sum")
    if tensor.dim() == 0:
        raise ValueError("reducescatter of a tensor without dimensions")
    request = core.request(process_set.number(), _name_of(kind, name, process_set), core.NAMED_REDUCE_SCATTER, dtype=_dtype_of(tensor),
                           reduce_op=reduce_op_of(op), prescale=prescale_factor, postscale=postscale_factor, shapes=(tuple(tensor.shape),))
    work, result = _begin_with_output(request, tensor)
    return _enter(work, lambda done: result(done)[0])


def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op: int = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> int:
    """This rank's share of the rows of all tensors combined; the first ranks have one more where rows are left over; a handle."""
    return _begin_reduce_scatter("reducescatter", tensor, name, op, prescale_factor, postscale_factor, process_set)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet, prescale: float,
                postscale: float) -> torch.Tensor:
        ctx.arguments = name, op, process_set, prescale * postscale
        return synchronize(reducescatter_async(tensor, name, op, process_set, prescale, postscale))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        name, op, process_set, scale = ctx.arguments
        gradient = gradient * (scale if op == Average else scale * process_set.size())
        return (allgather(gradient, _of_gradient(name), process_set), *[None] * 5)


def reducescatter(tensor: torch.Tensor, name: str | None = None, compression: type[Compressor] = Compression.none,
                  op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """As reducescatter_async, waited for. Has a gradient."""
    compressed, context = compression.compress(tensor)
    made = _ReduceScatter.apply(compressed, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(made, context)


def grouped_reducescatter_async(tensors: Iterable[torch.Tensor], name: str | None = None, op: int = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """As reducescatter_async, of several tensors, and one handle."""
    group = _name_of("grouped_reducescatter", name, process_set)
    return _several([_begin_reduce_scatter("grouped_reducescatter", tensor, f"{group}.{index}", op, prescale_factor,
                                           postscale_factor, process_set) for index, tensor in enumerate(tensors)])


def grouped_reducescatter(tensors: Iterable[torch.Tensor], name: str | None = None,
                          compression: type[Compressor] = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> list[torch.Tensor]:
    """As reducescatter, of several tensors. Has a gradient."""
    group = _name_of("grouped_reducescatter", name, process_set)
    return [reducescatter(tensor, f"{group}.{index}", compression, op, process_set, prescale_factor, postscale_factor)
            for index, tensor in enumerate(tensors)]


# ---- The rest ----

def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it."""
    core.submit(process_set.number(), _name_of("barrier", None, process_set), core.NAMED_BARRIER).wait()


def join(device: int = -1) -> int:
    """This rank has nothing more to do: until all have joined, the others' operations go on without it. Returns the rank that joined
    last. device: not used."""
    return core.join(global_process_set.number())
