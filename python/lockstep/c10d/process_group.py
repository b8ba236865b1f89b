"""torch.distributed's ProcessGroup on sets of ranks of the core: collectives in the order of calls."""
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ReduceOp

from lockstep import core
from lockstep.c10d import meeting
from lockstep.c10d.work import Part, Pending, Work, as_torch_has_it
from lockstep.torch.heap import keep_freed_memory
from lockstep.torch.mpi_ops import _DTYPES as _dtypes
from lockstep.torch.mpi_ops import _ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from torch._C._distributed_c10d import (
        AllgatherOptions, AllreduceOptions, AllToAllOptions, BarrierOptions, BroadcastOptions, GatherOptions, ReduceOptions,
        ReduceScatterOptions, ScatterOptions, _DistributedBackendOptions)

_OPS = ((ReduceOp.SUM, core.SUM), (ReduceOp.AVG, core.AVERAGE), (ReduceOp.MIN, core.MIN), (ReduceOp.MAX, core.MAX),
        (ReduceOp.PRODUCT, core.PRODUCT), (ReduceOp.BAND, core.BAND), (ReduceOp.BOR, core.BOR), (ReduceOp.BXOR, core.BXOR))
_DEFAULT_TIMEOUT_S = 1800  # torch's own: who has not said another one has that of the job, LOCKSTEP_TIMEOUT
_MOST_SPARSE = 256  # sparse all_reduces under way at a time, whose names come again after so many


def make(options: _DistributedBackendOptions) -> ProcessGroup:
    """The group that torch asks for: the default one, or one of new_group()."""
    seconds = options.timeout.total_seconds()
    seconds = None if seconds == _DEFAULT_TIMEOUT_S else seconds
    rank, size, ranks = options.group_rank, options.group_size, list(options.global_ranks_in_group)
    try:
        keep_freed_memory()  # of DistributedDataParallel's buckets, too
        if not ranks:
            begun = meeting.join(options.store, rank, size, seconds)
            return ProcessGroup(core.WORLD, rank, size, options.store, seconds, begun)
        if not core.is_initialized():
            if size != dist.get_world_size():
                raise ValueError("new_group(backend=\"lockstep\") of some ranks: all ranks come together first, by "
                                 "init_process_group(\"lockstep\") or a new_group(backend=\"lockstep\") of all")
            meeting.join(options.store, rank, size, seconds)
        return ProcessGroup(core.new_set(ranks), rank, size, options.store, seconds, False)
    except Exception as error:
        raise as_torch_has_it(error) from None


def _op_of(options: Any) -> int:
    """Of options, or of a ReduceOp itself."""
    wanted = getattr(options, "reduceOp", options)
    if wanted is None:
        return core.SUM
    for op, number in _OPS:
        if wanted == op:
            return number
    raise ValueError(f"{wanted} is not taken; known are {', '.join(str(op) for op, _ in _OPS)}")


def _root_of(options: Any) -> int:
    return options if isinstance(options, int) else getattr(options, "rootRank", 0)


def _dtype_of(tensor: torch.Tensor) -> int:
    found = _dtypes.get(tensor.dtype)
    if found is None:
        raise ValueError(f"tensors of {tensor.dtype} are not reduced; those of {', '.join(map(str, _dtypes))} are")
    return found


def _listed(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _only(tensors, what):
    """torch's lists have one entry for each device, of which there is one."""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    if len(tensors) != 1:
        raise ValueError(f"{what}: {len(tensors)} entries, where each rank has 1")
    return tensors[0]


def _require_dense(tensor: torch.Tensor) -> None:
    if tensor.is_sparse:
        raise ValueError("sparse tensors are taken by all_reduce alone; use to_dense()")


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """As C reads it: on the CPU, with its elements one after another."""
    _require_dense(tensor)
    return _ready(tensor)


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _Outputs:
    """Where C writes, for tensors that it may not reach: their own memory where that is possible, else memory that is copied."""

    def __init__(self) -> None:
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def of(self, tensor: torch.Tensor, reads: bool = False) -> torch.Tensor:
        """A tensor to write to instead of this one; reads: with its elements."""
        _require_dense(tensor)
        if tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            return tensor.detach()
        written = _readable(tensor).clone() if reads else torch.empty(tensor.shape, dtype=tensor.dtype)
        self._copies.append((tensor.detach(), written))
        return written

    def one_after_another(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """One flat tensor to write to instead of these, which are of one type."""
        flat = _adjacent(tensors)
        if flat is None:
            flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype if tensors else torch.uint8)
            at = 0
            for tensor in tensors:
                self._copies.append((tensor.detach(), flat[at:at + tensor.numel()].view(tensor.shape)))
                at += tensor.numel()
        return flat

    def copy(self) -> None:
        """Gives the tensors what C has written."""
        for tensor, written in self._copies:
            tensor.copy_(written)

    def finish(self) -> Callable[[], None] | None:
        """What a Pending is given."""
        return self.copy if self._copies else None


def _adjacent(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The memory of these, flat, where they lie one after another already; else None."""
    if not tensors or any(tensor.device.type != "cpu" or not tensor.is_contiguous() for tensor in tensors):
        return None
    first = tensors[0].detach()
    if len(tensors) == 1:
        return first.view(-1)
    storage = first.untyped_storage().data_ptr()
    at = first.data_ptr()
    for tensor in tensors:
        if tensor.dtype != first.dtype or tensor.untyped_storage().data_ptr() != storage or tensor.data_ptr() != at:
            return None
        at += _bytes_of(tensor)
    return first.as_strided((sum(tensor.numel() for tensor in tensors),), (1,))


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """These one after another, to read."""
    found = _adjacent(tensors)
    if found is not None:
        return found
    return torch.cat([_readable(tensor).view(-1) for tensor in tensors]) if tensors else torch.empty(0, dtype=torch.uint8)


def _require_alike(tensors: Iterable[torch.Tensor], like: torch.Tensor, what: str) -> None:
    for tensor in tensors:
        if tensor.dtype != like.dtype or tensor.numel() != like.numel():
            raise ValueError(f"{what}: tensors of {tuple(tensor.shape)} {tensor.dtype} and of {tuple(like.shape)} {like.dtype}, where "
                             "all are alike")


_Backend: Any = getattr(torch._C._distributed_c10d, "Backend", object)


class _ListedBackend(_Backend):
    """What torch finds where it asks which devices a group serves, and by what. Operations do not come here."""

    def getBackendName(self) -> str:
        """The name that init_process_group() knows."""
        return "lockstep"


class ProcessGroup(dist.ProcessGroup):
    """A set of ranks. Collectives are begun by all of its ranks in the same order; messages arrive in the order of their tag."""

    _number: int | None  # of lockstep_c.h; None after shutdown()
    _together: list[Work] | None  # what is being coalesced

    def __init__(self, number: int, rank: int, size: int, store: dist.Store, seconds: float | None, begun: bool) -> None:
        super().__init__(rank, size)
        self._number, self._rank, self._size, self._store, self._seconds, self._begun = number, rank, size, store, seconds, begun
        self._calls, self._sparse, self._together, self._monitored = 0, itertools.count(), None, itertools.count()
        self._names = {"name": "", "desc": "undefined"}
        try:
            self._listed_backend = _ListedBackend(rank, size)
            self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, self._listed_backend)
            super()._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        except (AttributeError, TypeError):  # older versions of torch do not ask groups for their backends
            pass

    # ---- What torch asks of a group ----

    def getBackendName(self) -> str:
        """The name that init_process_group() knows."""
        return "lockstep"

    name = getBackendName

    def rank(self) -> int:
        """This rank's number in the set."""
        return self._rank

    def size(self) -> int:
        """How many ranks the set has."""
        return self._size

    getRank, getSize = rank, size

    def _get_backend(self, device):
        return self

    supports_splitting = supports_coalescing = False

    def getGroupName(self) -> str:
        """The name that torch has given it, or ""."""
        return self._names["name"]

    def setGroupName(self, name: str) -> None:
        """Gives it that name."""
        self._names["name"] = name

    def getGroupDesc(self) -> str:
        """What the program says that it is for, or "undefined"."""
        return self._names["desc"]

    def setGroupDesc(self, desc: str) -> None:
        """Says what it is for."""
        self._names["desc"] = desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def _set_default_backend(self, kind):
        pass

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._calls

    def set_timeout(self, timeout: timedelta) -> None:
        """How long operations that begin from now on are waited for at most."""
        self._seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Leaves the set; the default group ends the job's world where it has begun it."""
        number, self._number = self._number, None
        if number is None or not core.is_initialized():
            return
        if number != core.WORLD:
            core.free_set(number)
        elif self._begun:
            core.shutdown()

    def abort(self) -> None:
        """As shutdown()."""
        self.shutdown()

    def __repr__(self):
        return f"<lockstep: rank {self._rank} of {self._size}>"

    # ---- How operations begin and end ----

    def _work(self, what, works, result, finish=None, is_message=False):
        made = Work(Pending(what, works, finish, result, is_message), self._seconds)
        if self._together is not None:
            self._together.append(made)
        return made

    def _begin(self, operation, *arguments, kept=None):
        """A work of the core in the order of calls."""
        if self._number is None:
            raise ValueError(f"{operation}: the group was destroyed")
        self._calls += 1
        try:
            return core.begin(operation, self._number, *arguments, kept=kept)
        except Exception as error:
            raise as_torch_has_it(error) from None

    def _require_one_each(self, listed, operation, what="tensors"):
        if len(listed) != self._size:
            raise ValueError(f"{operation}: {len(listed)} {what} for {self._size} ranks")

    def _start_coalescing(self, device=None):
        self._together = []

    def _end_coalescing(self, device=None):
        parts, self._together = self._together, None
        return self._joined("coalesced", parts)

    def _joined(self, what, parts):
        """One Work for several."""
        return self._work(what, [Part(part) for part in parts], [tensor for part in parts for tensor in part.result()])

    def register(self, tensor: torch.Tensor) -> core.Registered:
        """The host's other ranks reach the tensor's memory, whose elements lie one after another, as long as the result lives."""
        if self._number is None:
            raise ValueError("register: the group was destroyed")
        try:
            return core.Registered(self._number, tensor.data_ptr(), _bytes_of(tensor), kept=tensor)
        except Exception as error:
            raise as_torch_has_it(error) from None

    # ---- Reductions ----

    def _all_reduce(self, tensor, op):
        outputs = _Outputs()
        written = outputs.of(tensor, reads=True)
        work = self._begin("all_reduce", written.data_ptr(), written.data_ptr(), written.numel(), _dtype_of(written), op, kept=written)
        return self._work("all_reduce", [work], [tensor], outputs.finish())

    def allreduce(self, tensors: torch.Tensor | list[torch.Tensor], opts: AllreduceOptions | ReduceOp | None = None) -> Work:
        """The tensors of all ranks combined, in place; dense or sparse."""
        tensor = _only(tensors, "all_reduce")
        return self._all_reduce_sparse(tensor, opts) if tensor.is_sparse else self._all_reduce(tensor, _op_of(opts))

    def allreduce_coalesced(self, tensors: torch.Tensor | list[torch.Tensor], opts: AllreduceOptions | ReduceOp | None = None) -> Work:
        """As allreduce of each of these, which are dense."""
        return self._joined("all_reduce", [self._all_reduce(tensor, _op_of(opts)) for tensor in _listed(tensors)])

    def allreduce_sparse(self, tensors: torch.Tensor | list[torch.Tensor], opts: AllreduceOptions | ReduceOp | None = None) -> Work:
        """As allreduce of a sparse tensor. Raises ValueError for others than SUM and AVG."""
        return self._all_reduce_sparse(_only(tensors, "all_reduce"), opts)

    def _all_reduce_sparse(self, tensor, opts):
        """The ranks' entries one after another, coalesced; found by name, since each rank has as many as it likes."""
        op = _op_of(opts)
        if op not in (core.SUM, core.AVERAGE):
            raise ValueError("all_reduce of sparse tensors adds or averages")
        if self._number is None:
            raise ValueError("all_reduce: the group was destroyed")
        mine = tensor.detach().coalesce()
        number, entries = next(self._sparse) % _MOST_SPARSE, mine._nnz()
        parts = [_readable(mine.indices().t()), _readable(mine.values())]
        works = [core.submit(self._number, f"all_reduce of a sparse tensor {number} {what}", core.NAMED_ALL_GATHER,
                             dtype=_dtype_of(part), shapes=(tuple(part.shape[1:]),), addresses=(part.data_ptr(),), rows=(entries,),
                             kept=part)
                 for what, part in zip(("indices", "values"), parts)]
        outputs = list(works)  # which keep what they have made

        def finish() -> None:
            made = []
            for work, part in zip(outputs, parts):
                buffer, size, _ = work.output_buffer()
                flat = torch.frombuffer(buffer, dtype=part.dtype, count=size // part.element_size()) if size else part[:0].reshape(-1)
                made.append(flat.view(-1, *part.shape[1:]).clone())
            sums = torch.sparse_coo_tensor(made[0].t(), made[1], tensor.shape).coalesce()
            if op == core.AVERAGE:
                sums = sums / self._size
            tensor.copy_(sums)

        return self._work("all_reduce of a sparse tensor", works, [tensor], finish)

    def reduce(self, tensors: torch.Tensor | list[torch.Tensor], opts: ReduceOptions | int | None = None) -> Work:
        """The tensors of all ranks combined, in place on the root."""
        tensor, root = _only(tensors, "reduce"), _root_of(opts)
        outputs = _Outputs()
        written = outputs.of(tensor, reads=True) if self._rank == root else _readable(tensor)
        address = written.data_ptr()
        work = self._begin("reduce", address, address if self._rank == root else None, written.numel(), _dtype_of(written),
                           _op_of(opts), root, kept=written)
        return self._work("reduce", [work], [tensor], outputs.finish())

    def _reduce_scatter(self, output, input, op):
        outputs = _Outputs()
        read, written = _readable(input), outputs.of(output)
        if read.dtype != written.dtype or read.numel() != self._size * written.numel():
            raise ValueError(f"reduce_scatter: an input of {tuple(input.shape)} {input.dtype} for an output of "
                             f"{tuple(output.shape)} {output.dtype} on each of {self._size} ranks")
        work = self._begin("reduce_scatter", read.data_ptr(), written.data_ptr(), written.numel(), _dtype_of(read), op,
                           kept=(read, written))
        return self._work("reduce_scatter", [work], [output], outputs.finish())

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor,
                              opts: ReduceScatterOptions | ReduceOp | None = None) -> Work:
        """The inputs of all ranks combined, of which each gets its part. Raises ValueError unless they have size() times its elements."""
        return self._reduce_scatter(output, input, _op_of(opts))

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                        opts: ReduceScatterOptions | ReduceOp | None = None) -> Work:
        """As reduce_scatter_single of each pair."""
        return self._joined("reduce_scatter", [self._reduce_scatter(*pair, _op_of(opts)) for pair in zip(outputs, inputs)])

    def reduce_scatter(self, outputs: torch.Tensor | list[torch.Tensor], inputs: list[list[torch.Tensor]],
                       opts: ReduceScatterOptions | ReduceOp | None = None) -> Work:
        """inputs: one list, of a tensor for each rank, which may differ in size; those for this one are combined in its output."""
        output, blocks = _only(outputs, "reduce_scatter"), _only(inputs, "reduce_scatter")
        self._require_one_each(blocks, "reduce_scatter")
        if all(block.numel() == output.numel() for block in blocks):
            return self._reduce_scatter(output, _flat(blocks), _op_of(opts))
        _require_alike([blocks[self._rank]], output, "reduce_scatter")
        if any(block.dtype != output.dtype for block in blocks):
            raise ValueError("reduce_scatter: tensors of several types")
        made, op, works = _Outputs(), _op_of(opts), []  # of several sizes: each to its rank
        for root, block in enumerate(blocks):
            read = _readable(block)
            written = made.of(output) if root == self._rank else None
            works.append(self._begin("reduce", read.data_ptr(), written.data_ptr() if written is not None else None, read.numel(),
                                     _dtype_of(read), op, root, kept=(read, written)))
        return self._work("reduce_scatter", works, [output], made.finish())

    # ---- Copies ----

    def broadcast(self, tensors: torch.Tensor | list[torch.Tensor], opts: BroadcastOptions | int = 0) -> Work:
        """The root's tensor, on all ranks, in place."""
        tensor = _only(tensors, "broadcast")
        outputs = _Outputs()
        written = outputs.of(tensor, reads=True)
        work = self._begin("broadcast", written.data_ptr(), _bytes_of(written), _root_of(opts), kept=written)
        return self._work("broadcast", [work], [tensor], outputs.finish())

    def _all_gather(self, output, input, outputs=None, result=None):
        outputs = outputs or _Outputs()
        read, written = _readable(input), outputs.of(output)
        if read.dtype != written.dtype or written.numel() != self._size * read.numel():
            raise ValueError(f"all_gather: an output of {tuple(output.shape)} {output.dtype} for inputs of {tuple(input.shape)} "
                             f"{input.dtype} from {self._size} ranks")
        work = self._begin("all_gather", read.data_ptr(), written.data_ptr(), _bytes_of(read), kept=(read, written))
        return self._work("all_gather", [work], result or [output], outputs.finish())

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: AllgatherOptions | None = None) -> Work:
        """The inputs of all ranks one after another. Raises ValueError unless the output has size() times their elements."""
        return self._all_gather(output, input)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                    opts: AllgatherOptions | None = None) -> Work:
        """As all_gather_single of each pair."""
        return self._joined("all_gather", [self._all_gather(*pair) for pair in zip(outputs, inputs)])

    def allgather(self, outputs: list[list[torch.Tensor]] | list[torch.Tensor], inputs: torch.Tensor | list[torch.Tensor],
                  opts: AllgatherOptions | None = None) -> Work:
        """The inputs of all ranks, which may differ in size, each in an output of its own."""
        input = _only(inputs, "all_gather")
        listed: Any = _only(outputs, "all_gather") if not isinstance(outputs[0], torch.Tensor) else outputs
        self._require_one_each(listed, "all_gather")
        made = _Outputs()
        if all(output.numel() == input.numel() and output.dtype == input.dtype for output in listed):
            return self._all_gather(made.one_after_another(listed), input, made, listed)
        _require_alike([listed[self._rank]], input, "all_gather")
        works = []  # of several sizes: each from its rank
        for root, output in enumerate(listed):
            written = made.of(output)
            if root == self._rank:
                written.copy_(input.reshape(written.shape))
            works.append(self._begin("broadcast", written.data_ptr(), _bytes_of(written), root, kept=written))
        return self._work("all_gather", works, listed, made.finish())

    def allgather_coalesced(self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor],
                            opts: AllgatherOptions | None = None) -> Work:
        """output_lists: of each rank its tensors, as many as there are inputs."""
        parts = [self.allgather([list(outputs)], [input]) for outputs, input in zip(zip(*output_lists), inputs)]
        return self._joined("all_gather", parts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: torch.Tensor | list[torch.Tensor],
               opts: GatherOptions | int | None = None) -> Work:
        """The inputs of all ranks, which are alike, each in an output of its own on the root. Elsewhere outputs are not looked at."""
        input, root = _readable(_only(inputs, "gather")), _root_of(opts)
        made, listed, flat = _Outputs(), [], None
        if self._rank == root:
            listed = list(_only(outputs, "gather"))
            self._require_one_each(listed, "gather")
            _require_alike(listed, input, "gather")
            flat = made.one_after_another(listed)
        work = self._begin("gather", input.data_ptr(), None if flat is None else flat.data_ptr(), _bytes_of(input), root,
                           kept=(input, flat))
        return self._work("gather", [work], listed, made.finish())

    def scatter(self, outputs: torch.Tensor | list[torch.Tensor], inputs: list[list[torch.Tensor]],
                opts: ScatterOptions | int | None = None) -> Work:
        """Of the root's inputs, which are alike, each rank's in its output. Elsewhere inputs are not looked at."""
        output, root = _only(outputs, "scatter"), _root_of(opts)
        made, flat = _Outputs(), None
        written = made.of(output)
        if self._rank == root:
            listed = list(_only(inputs, "scatter"))
            self._require_one_each(listed, "scatter")
            _require_alike(listed, output, "scatter")
            flat = _flat(listed)
        work = self._begin("scatter", None if flat is None else flat.data_ptr(), written.data_ptr(), _bytes_of(written), root,
                           kept=(flat, written))
        return self._work("scatter", [work], [output], made.finish())

    def _all_to_all(self, output, input, received, sent, made, result):
        """output, input: flat; received, sent: elements for each rank."""
        each = input.element_size()
        work = self._begin("all_to_all_v", input.data_ptr(), core.sizes([count * each for count in sent]), output.data_ptr(),
                           core.sizes([count * each for count in received]), kept=(input, output))
        return self._work("all_to_all", [work], result, made.finish())

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] | None = None,
                          input_split_sizes: Sequence[int] | None = None, opts: AllToAllOptions | None = None) -> Work:
        """Splits are rows; without, all ranks' are alike."""
        def row_of(tensor: torch.Tensor) -> int | None:
            return tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else None if tensor.dim() else 1

        of_input, of_output = row_of(input), row_of(output)
        if input.dtype != output.dtype or (of_input != of_output and None not in (of_input, of_output)):
            raise ValueError(f"all_to_all: an output of {tuple(output.shape)} {output.dtype} for an input of {tuple(input.shape)} "
                             f"{input.dtype}: rows are alike")
        made = _Outputs()
        read, written = _readable(input), made.of(output)
        counts = []
        for what, tensor, splits in (("an output", output, output_split_sizes), ("an input", input, input_split_sizes)):
            rows = tensor.shape[0] if tensor.dim() else 1
            if not splits:
                if rows % self._size:
                    raise ValueError(f"all_to_all: {what} of {rows} rows does not divide among {self._size} ranks")
                splits = [rows // self._size] * self._size
            if len(splits) != self._size or sum(splits) != rows:
                raise ValueError(f"all_to_all: {what} of {rows} rows is split into {list(splits)} among {self._size} ranks")
            counts.append([split * (row_of(tensor) or 0) for split in splits])
        return self._all_to_all(written, read, counts[0], counts[1], made, [output])

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: AllToAllOptions | None = None) -> Work:
        """Each input to its rank; each output from its rank. They may differ in size."""
        for what, listed in (("outputs", outputs), ("inputs", inputs)):
            self._require_one_each(listed, "all_to_all", what)
        _require_alike([inputs[self._rank]], outputs[self._rank], "all_to_all: what a rank keeps")
        if len({tensor.dtype for tensor in (*inputs, *outputs)}) > 1:
            raise ValueError("all_to_all: tensors of several types")
        made = _Outputs()
        return self._all_to_all(made.one_after_another(list(outputs)), _flat(list(inputs)), [one.numel() for one in outputs],
                                [one.numel() for one in inputs], made, list(outputs))

    # ---- Messages ----

    def send(self, tensors: torch.Tensor | list[torch.Tensor], destination: int, tag: int = 0) -> Work:
        """Sends the tensor to that rank of the set."""
        read = _readable(_only(tensors, "send"))
        work = self._begin("send", read.data_ptr(), _bytes_of(read), destination, tag, kept=read)
        return self._work(f"send to {destination}", [work], [], is_message=True)

    def recv(self, tensors: torch.Tensor | list[torch.Tensor], source: int, tag: int = 0) -> Work:
        """Receives the tensor from that rank of the set; below 0: from any."""
        tensor, made = _only(tensors, "recv"), _Outputs()
        written = made.of(tensor)
        work = self._begin("recv", written.data_ptr(), _bytes_of(written), source, tag, kept=written)
        return self._work("recv" if source < 0 else f"recv from {source}", [work], [tensor], made.finish(), is_message=True)

    def recv_anysource(self, tensors: torch.Tensor | list[torch.Tensor], tag: int = 0) -> Work:
        """Receives the tensor from any rank, which the Work's source_rank() then is."""
        return self.recv(tensors, -1, tag)

    # ---- Barriers ----

    def barrier(self, opts: BarrierOptions | None = None) -> Work:
        """Is over when all ranks have come here."""
        return self._work("barrier", [self._begin("barrier")], [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Rank 0 names who has not come in time."""
        place = f"monitored_barrier/{next(self._monitored)}"
        self._store.set(f"{place}/{self._rank}", "here")
        if self._rank != 0:
            self._wait_in_store(f"{place}/all", timeout, "monitored_barrier: rank 0 did not say that all are there")
            if self._store.get(f"{place}/all") != b"all":
                raise RuntimeError(self._store.get(f"{place}/all").decode())
            return
        missing = []
        for rank in range(1, self._size):
            try:
                self._wait_in_store(f"{place}/{rank}", timeout, "")
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        text = f"Ranks {missing} failed to pass monitoredBarrier in {timeout}" if wait_all_ranks else \
            f"Rank {missing[0] if missing else None} failed to pass monitoredBarrier in {timeout}"
        self._store.set(f"{place}/all", text if missing else "all")
        if missing:
            raise RuntimeError(text)

    def _wait_in_store(self, key, timeout, text):
        try:
            self._store.wait([key], timeout) if timeout else self._store.wait([key])
        except Exception as error:
            raise RuntimeError(f"{text}: {error}") from None

    # Under the names that older versions of torch have for them.
    _allgather_base, _reduce_scatter_base, alltoall_base = all_gather_single, reduce_scatter_single, all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
