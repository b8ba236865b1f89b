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
from lockstep.torch.gpu import Place, place_of
from lockstep.torch.heap import keep_freed_memory
from lockstep.torch.mpi_ops import _CPU, _is_ready, _ready
from lockstep.torch.mpi_ops import _DTYPES as _dtypes

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


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _Tensors:
    """The tensors of a call as C takes them, on the CPU or on the call's GPU: where they are, if that is possible, else in memory that is
    copied."""

    def __init__(self, place: Place | None = None) -> None:
        self.place, self._device = place, place.device if place else _CPU
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def to_read(self, tensor: torch.Tensor) -> torch.Tensor:
        """With its elements one after another."""
        self._require_taken(tensor)
        return _ready(tensor, self._device)

    def to_write(self, tensor: torch.Tensor, reads: bool = False) -> torch.Tensor:
        """What C writes to; reads: with the elements that it has."""
        self._require_taken(tensor)
        if _is_ready(tensor, self._device):
            return tensor.detach()
        written = self.to_read(tensor).clone() if reads else torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)
        self._copies.append((tensor.detach(), written))
        return written

    def all_to_read(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """These one after another, as one flat tensor."""
        found = self._adjacent(tensors)
        if found is not None:
            return found
        if not tensors:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        return torch.cat([self.to_read(tensor).view(-1) for tensor in tensors])

    def all_to_write(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """One flat tensor to write to instead of these, which are of one type."""
        flat = self._adjacent(tensors)
        if flat is None:
            flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype if tensors else torch.uint8,
                               device=self._device)
            at = 0
            for tensor in tensors:
                self._require_taken(tensor)
                self._copies.append((tensor.detach(), flat[at:at + tensor.numel()].view(tensor.shape)))
                at += tensor.numel()
        return flat

    def finish(self) -> Callable[[], None] | None:
        """What a Pending is given: it gives the tensors what C has written."""
        return self._copy if self._copies else None

    def _copy(self):
        for tensor, written in self._copies:
            tensor.copy_(written)
            if self.place is not None:
                self.place.use(tensor)

    def _require_taken(self, tensor):
        if tensor.is_sparse:
            raise ValueError("sparse tensors are taken by all_reduce alone; use to_dense()")
        if self.place is not None:
            self.place.require_own(tensor)

    def _adjacent(self, tensors):
        """The memory of these, flat, where they lie one after another already; else None."""
        if not tensors or any(tensor.device != self._device or not tensor.is_contiguous() for tensor in tensors):
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
        self._places: dict[torch.device, Place] = {}  # where calls were
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
        """Leaves the set, when GPUs are through with what was waited for; the default group ends the job's world where it has begun it."""
        try:
            for place in self._places.values():
                place.synchronize()
        finally:
            self._leave()

    def abort(self) -> None:
        """As shutdown(), at once."""
        self._leave()

    def _leave(self):
        number, self._number = self._number, None
        if number is None or not core.is_initialized():
            return
        if number != core.WORLD:
            core.free_set(number)
        elif self._begun:
            core.shutdown()

    def __repr__(self):
        return f"<lockstep: rank {self._rank} of {self._size}>"

    # ---- How operations begin and end ----

    def _work(self, what, works, result, tensors=None, finish=None, is_message=False, places=()):
        """tensors: a _Tensors, which knows how the call ends, and where it is."""
        if tensors is not None:
            finish, places = tensors.finish(), [tensors.place] if tensors.place else ()
        made = Work(Pending(what, works, finish, result, is_message, places), self._seconds)
        if self._together is not None:
            self._together.append(made)
        return made

    def _tensors(self, tensor, op=None):
        """Of a call that every rank gives this tensor, to be combined by op."""
        dtype = core.U8 if op is None else _dtype_of(tensor)
        self._require_there("a call")
        try:
            place = place_of(self._number, tensor, dtype, op)
        except Exception as error:
            raise as_torch_has_it(error) from None
        if place is not None:
            self._places[place.device] = place
        return _Tensors(place)

    def _require_there(self, operation):
        if self._number is None:
            raise ValueError(f"{operation}: the group was destroyed")

    def _begin(self, operation, *arguments, kept=None, place=None):
        """A work of the core in the order of calls."""
        self._require_there(operation)
        self._calls += 1
        try:
            on = place.begin(kept if isinstance(kept, tuple) else (kept,)) if place else None
            return core.begin(operation, self._number, *arguments, kept=kept, place=on)
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
        result = [tensor for part in parts for tensor in part.result()]
        pending = [Part(part) for part in parts]
        return self._work(what, pending, result, places=[place for part in pending for place in part.places])

    def register(self, tensor: torch.Tensor) -> core.Registered:
        """The host's other ranks reach the tensor's memory, whose elements lie one after another, as long as the result lives."""
        self._require_there("register")
        try:
            return core.Registered(self._number, tensor.data_ptr(), _bytes_of(tensor), kept=tensor)
        except Exception as error:
            raise as_torch_has_it(error) from None

    # ---- Reductions ----

    def _all_reduce(self, tensor, op):
        tensors = self._tensors(tensor, op)
        written = tensors.to_write(tensor, reads=True)
        work = self._begin("all_reduce", written.data_ptr(), written.data_ptr(), written.numel(), _dtype_of(written), op, kept=written,
                           place=tensors.place)
        return self._work("all_reduce", [work], [tensor], tensors)

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
        self._require_there("all_reduce")
        mine = tensor.detach().coalesce()
        number, entries = next(self._sparse) % _MOST_SPARSE, mine._nnz()
        parts = [_ready(mine.indices().t()), _ready(mine.values())]
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

        return self._work("all_reduce of a sparse tensor", works, [tensor], finish=finish)

    def reduce(self, tensors: torch.Tensor | list[torch.Tensor], opts: ReduceOptions | int | None = None) -> Work:
        """The tensors of all ranks combined, in place on the root."""
        tensor, root, op = _only(tensors, "reduce"), _root_of(opts), _op_of(opts)
        its = self._tensors(tensor, op)
        written = its.to_write(tensor, reads=True) if self._rank == root else its.to_read(tensor)
        address = written.data_ptr()
        work = self._begin("reduce", address, address if self._rank == root else None, written.numel(), _dtype_of(written), op, root,
                           kept=written, place=its.place)
        return self._work("reduce", [work], [tensor], its)

    def _reduce_scatter(self, output, input, op):
        """input: a tensor, or one for each rank."""
        tensors = self._tensors(output, op)
        read = tensors.to_read(input) if isinstance(input, torch.Tensor) else tensors.all_to_read(input)
        written = tensors.to_write(output)
        if read.dtype != written.dtype or read.numel() != self._size * written.numel():
            raise ValueError(f"reduce_scatter: an input of {tuple(read.shape)} {read.dtype} for an output of "
                             f"{tuple(output.shape)} {output.dtype} on each of {self._size} ranks")
        work = self._begin("reduce_scatter", read.data_ptr(), written.data_ptr(), written.numel(), _dtype_of(read), op,
                           kept=(read, written), place=tensors.place)
        return self._work("reduce_scatter", [work], [output], tensors)

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
            return self._reduce_scatter(output, blocks, _op_of(opts))
        _require_alike([blocks[self._rank]], output, "reduce_scatter")
        if any(block.dtype != output.dtype for block in blocks):
            raise ValueError("reduce_scatter: tensors of several types")
        op, works = _op_of(opts), []  # of several sizes: each to its rank
        tensors = self._tensors(output, op)
        for root, block in enumerate(blocks):
            read = tensors.to_read(block)
            written = tensors.to_write(output) if root == self._rank else None
            works.append(self._begin("reduce", read.data_ptr(), written.data_ptr() if written is not None else None, read.numel(),
                                     _dtype_of(read), op, root, kept=(read, written), place=tensors.place))
        return self._work("reduce_scatter", works, [output], tensors)

    # ---- Copies ----

    def broadcast(self, tensors: torch.Tensor | list[torch.Tensor], opts: BroadcastOptions | int = 0) -> Work:
        """The root's tensor, on all ranks, in place."""
        tensor = _only(tensors, "broadcast")
        its = self._tensors(tensor)
        written = its.to_write(tensor, reads=True)
        work = self._begin("broadcast", written.data_ptr(), _bytes_of(written), _root_of(opts), kept=written, place=its.place)
        return self._work("broadcast", [work], [tensor], its)

    def _all_gather(self, output, input):
        """output: a tensor, or one for each rank."""
        tensors = self._tensors(input)
        is_one = isinstance(output, torch.Tensor)
        read, written = tensors.to_read(input), tensors.to_write(output) if is_one else tensors.all_to_write(output)
        if read.dtype != written.dtype or written.numel() != self._size * read.numel():
            raise ValueError(f"all_gather: an output of {tuple(written.shape)} {written.dtype} for inputs of {tuple(input.shape)} "
                             f"{input.dtype} from {self._size} ranks")
        work = self._begin("all_gather", read.data_ptr(), written.data_ptr(), _bytes_of(read), kept=(read, written),
                           place=tensors.place)
        return self._work("all_gather", [work], [output] if is_one else output, tensors)

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
        if all(output.numel() == input.numel() and output.dtype == input.dtype for output in listed):
            return self._all_gather(listed, input)
        _require_alike([listed[self._rank]], input, "all_gather")
        tensors, works = self._tensors(input), []  # of several sizes: each from its rank
        for root, output in enumerate(listed):
            written = tensors.to_write(output)
            if root == self._rank:
                written.copy_(input.reshape(written.shape))
            works.append(self._begin("broadcast", written.data_ptr(), _bytes_of(written), root, kept=written, place=tensors.place))
        return self._work("all_gather", works, listed, tensors)

    def allgather_coalesced(self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor],
                            opts: AllgatherOptions | None = None) -> Work:
        """output_lists: of each rank its tensors, as many as there are inputs."""
        parts = [self.allgather([list(outputs)], [input]) for outputs, input in zip(zip(*output_lists), inputs)]
        return self._joined("all_gather", parts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: torch.Tensor | list[torch.Tensor],
               opts: GatherOptions | int | None = None) -> Work:
        """The inputs of all ranks, which are alike, each in an output of its own on the root. Elsewhere outputs are not looked at."""
        mine, root = _only(inputs, "gather"), _root_of(opts)
        tensors, listed, flat = self._tensors(mine), [], None
        input = tensors.to_read(mine)
        if self._rank == root:
            listed = list(_only(outputs, "gather"))
            self._require_one_each(listed, "gather")
            _require_alike(listed, input, "gather")
            flat = tensors.all_to_write(listed)
        work = self._begin("gather", input.data_ptr(), None if flat is None else flat.data_ptr(), _bytes_of(input), root,
                           kept=(input, flat), place=tensors.place)
        return self._work("gather", [work], listed, tensors)

    def scatter(self, outputs: torch.Tensor | list[torch.Tensor], inputs: list[list[torch.Tensor]],
                opts: ScatterOptions | int | None = None) -> Work:
        """Of the root's inputs, which are alike, each rank's in its output. Elsewhere inputs are not looked at."""
        output, root = _only(outputs, "scatter"), _root_of(opts)
        tensors, flat = self._tensors(output), None
        written = tensors.to_write(output)
        if self._rank == root:
            listed = list(_only(inputs, "scatter"))
            self._require_one_each(listed, "scatter")
            _require_alike(listed, output, "scatter")
            flat = tensors.all_to_read(listed)
        work = self._begin("scatter", None if flat is None else flat.data_ptr(), written.data_ptr(), _bytes_of(written), root,
                           kept=(flat, written), place=tensors.place)
        return self._work("scatter", [work], [output], tensors)

    def _all_to_all(self, output, input, received, sent, tensors, result):
        """output, input: flat; received, sent: elements for each rank."""
        each = input.element_size()
        work = self._begin("all_to_all_v", input.data_ptr(), core.sizes([count * each for count in sent]), output.data_ptr(),
                           core.sizes([count * each for count in received]), kept=(input, output), place=tensors.place)
        return self._work("all_to_all", [work], result, tensors)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] | None = None,
                          input_split_sizes: Sequence[int] | None = None, opts: AllToAllOptions | None = None) -> Work:
        """Splits are rows; without, all ranks' are alike."""
        def row_of(tensor: torch.Tensor) -> int | None:
            return tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else None if tensor.dim() else 1

        of_input, of_output = row_of(input), row_of(output)
        if input.dtype != output.dtype or (of_input != of_output and None not in (of_input, of_output)):
            raise ValueError(f"all_to_all: an output of {tuple(output.shape)} {output.dtype} for an input of {tuple(input.shape)} "
                             f"{input.dtype}: rows are alike")
        tensors = self._tensors(input)
        read, written = tensors.to_read(input), tensors.to_write(output)
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
        return self._all_to_all(written, read, counts[0], counts[1], tensors, [output])

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: AllToAllOptions | None = None) -> Work:
        """Each input to its rank; each output from its rank. They may differ in size."""
        for what, listed in (("outputs", outputs), ("inputs", inputs)):
            self._require_one_each(listed, "all_to_all", what)
        _require_alike([inputs[self._rank]], outputs[self._rank], "all_to_all: what a rank keeps")
        if len({tensor.dtype for tensor in (*inputs, *outputs)}) > 1:
            raise ValueError("all_to_all: tensors of several types")
        tensors = self._tensors(inputs[0])
        return self._all_to_all(tensors.all_to_write(list(outputs)), tensors.all_to_read(list(inputs)),
                                [one.numel() for one in outputs], [one.numel() for one in inputs], tensors, list(outputs))

    # ---- Messages ----

    def send(self, tensors: torch.Tensor | list[torch.Tensor], destination: int, tag: int = 0) -> Work:
        """Sends the tensor to that rank of the set."""
        read = _Tensors().to_read(_only(tensors, "send"))
        work = self._begin("send", read.data_ptr(), _bytes_of(read), destination, tag, kept=read)
        return self._work(f"send to {destination}", [work], [], is_message=True)

    def recv(self, tensors: torch.Tensor | list[torch.Tensor], source: int, tag: int = 0) -> Work:
        """Receives the tensor from that rank of the set; below 0: from any."""
        tensor, its = _only(tensors, "recv"), _Tensors()
        written = its.to_write(tensor)
        work = self._begin("recv", written.data_ptr(), _bytes_of(written), source, tag, kept=written)
        return self._work("recv" if source < 0 else f"recv from {source}", [work], [tensor], its, is_message=True)

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
