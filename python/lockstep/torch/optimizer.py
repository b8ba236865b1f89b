"""An optimizer whose gradients are averaged over all ranks during backward.

Gradients are reduced in buckets, in memory that the host's ranks reach, or on the parameters' GPU: each is copied there when it is
complete, and parameter.grad is that memory from then on. A bucket is on its way as soon as its last gradient is there.
"""
from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import TYPE_CHECKING

import torch

from lockstep import core
from lockstep.common.exceptions import HorovodInternalError
from lockstep.common.process_sets import global_process_set
from lockstep.torch import gpu, mpi_ops
from lockstep.torch.compression import Compression
from lockstep.torch.heap import keep_freed_memory
from lockstep.torch.mpi_ops import Adasum, Average

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from lockstep.common.compression import Compressor
    from lockstep.common.process_sets import ProcessSet

_FIRST_BUCKET_BYTES, _BUCKET_BYTES = 1 << 20, 8 << 20
_ALIGNMENT = 64


class _Bucket:
    """Gradients of one type that travel together, in memory that the host's ranks reach, or on the parameters' GPU."""

    def __init__(self, number: int, parameters: list[torch.Tensor], names: dict[torch.Tensor, str],
                 process_set: ProcessSet) -> None:
        self.parameters = parameters
        self.name = f"DistributedOptimizer.{number} ({names[parameters[0]]}" + (
            f" to {names[parameters[-1]]})" if len(parameters) > 1 else ")")
        dtype = parameters[0].dtype
        each = torch.empty((), dtype=dtype).element_size()
        step = _ALIGNMENT // each
        offsets: list[int]
        offsets, elements = [], 0
        for parameter in parameters:
            offsets.append(elements)
            elements += -(-parameter.numel() // step) * step
        if parameters[0].device.type == "cpu":
            memory = core.Memory(process_set.number(), max(elements, 1) * each)
            self.flat = torch.frombuffer(memory.buffer(), dtype=dtype, count=max(elements, 1))
            self.flat.zero_()
        else:
            self.flat = torch.zeros(max(elements, 1), dtype=dtype, device=parameters[0].device)
        self.slots = {parameter: self.flat[offset:offset + parameter.numel()].view(parameter.shape)
                      for parameter, offset in zip(parameters, offsets)}
        self.missing = set(parameters)
        self._streams: set[Any] = set()  # of torch's, on which gradients were put into it
        self.handle: Any = None  # while it is under way
        self.compressed: tuple[Any, Any] | None = None

    def take(self, parameter: torch.Tensor) -> None:
        """Its gradient, if it has one, else zeros."""
        slot = self.slots[parameter]
        gradient = parameter.grad
        if slot.dtype != parameter.dtype:
            raise ValueError(f"a parameter of {self.name} is of {parameter.dtype} now, and was of {slot.dtype} when the optimizer was "
                             "wrapped: change types before DistributedOptimizer()")
        with torch.no_grad():
            if gradient is None:
                slot.zero_()
            elif gradient.data_ptr() != slot.data_ptr():
                slot.copy_(gradient)
        if slot.device.type == gpu.KIND:
            self._streams.add(gpu.current_stream(slot.device))
        if parameter.device == slot.device:
            parameter.grad = slot
        elif gradient is None:
            parameter.grad = torch.zeros_like(parameter)
        self.missing.discard(parameter)

    def begin(self, compression: type[Compressor], reduction: dict[str, Any], process_set: ProcessSet) -> None:
        for stream in self._streams:
            gpu.current_stream(self.flat.device).wait_stream(stream)
        self._streams.clear()
        sent, context = compression.compress(self.flat)
        if sent is not self.flat:
            self.compressed = sent, context
        self.handle = mpi_ops.allreduce_async_(sent, name=self.name, process_set=process_set, **reduction)

    def finish(self, compression: type[Compressor]) -> None:
        mpi_ops.synchronize(self.handle)
        with torch.no_grad():
            if self.compressed is not None:
                self.flat.copy_(compression.decompress(*self.compressed))
            for parameter, slot in self.slots.items():
                if parameter.device == slot.device:
                    parameter.grad = slot  # also where the program has put another one there meanwhile
                elif parameter.grad is None:
                    parameter.grad = slot.to(parameter.device, copy=True)
                else:
                    parameter.grad.copy_(slot)
        self.handle = self.compressed = None
        self.missing = set(self.parameters)

    def forget(self) -> None:
        """What is under way is of no use any more; it ends first, since its name is in use until then."""
        handle, self.handle, self.compressed = self.handle, None, None
        self.missing = set(self.parameters)
        if handle is not None:
            try:
                mpi_ops.synchronize(handle)
            except HorovodInternalError:
                pass  # whoever forgets knows of a failure


def _buckets_of(parameters, groups):
    """Lists of parameters of one type and device, in the order in which gradients come: the reverse one."""
    made, open_lists = [], {}
    grouped = {parameter: index for index, group in enumerate(groups or ()) for parameter in group}
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        key = parameter.dtype, parameter.device, grouped.get(parameter)
        if groups is not None and parameter not in grouped:
            made.append([parameter])  # each that is in no group is alone
            continue
        bucket, had = open_lists.get(key, (None, 0))
        limit = float("inf") if groups is not None else _FIRST_BUCKET_BYTES if len(made) <= 1 else _BUCKET_BYTES
        if bucket is None or had + size > limit:
            bucket, had = [], 0
            made.append(bucket)
        bucket.append(parameter)
        open_lists[key] = bucket, had + size
    return made


def _even_groups(parameters, count):
    """`count` groups of about as many parameters each."""
    each, more = divmod(len(parameters), count)
    made, begin = [], 0
    for index in range(count):
        end = begin + each + (1 if index < more else 0)
        made.append(parameters[begin:end])
        begin = end
    return [group for group in made if group]


def _names_of(param_groups, named_parameters):
    """{parameter: name}. Raises ValueError as Horovod does."""
    every = [parameter for group in param_groups for parameter in group["params"]]
    if named_parameters is None:
        return {parameter: f"allreduce.noname.{index}" for index, parameter in enumerate(every)}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                         "model.named_parameters().")
    seen, twice = set(), []
    for name, _ in pairs:
        (twice.append if name in seen else seen.add)(name)
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    names = {parameter: name for name, parameter in pairs}
    unnamed = [parameter for parameter in every if parameter not in names]
    if pairs and unnamed:
        raise ValueError("named_parameters was specified, but one or more model parameters were not named. Shapes: " +
                         ", ".join(str(tuple(parameter.shape)) for parameter in unnamed))
    return names or _names_of(param_groups, None)


def _require_groups(groups):
    if groups is None or (isinstance(groups, int) and groups >= 0):
        return
    if not isinstance(groups, list):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    seen = set()
    for group in groups:
        for parameter in group:
            if not torch.is_tensor(parameter):
                raise ValueError("groups must consist of torch.Tensor.")
            if parameter in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(parameter)


class _DistributedOptimizer(torch.optim.Optimizer):
    """What DistributedOptimizer() makes of an optimizer's class; `super(self.__class__, self)` is that."""

    def _begin_averaging(self, named_parameters, compression, backward_passes_per_step, reduction, groups, sparse_as_dense,
                         process_set):
        self._names = _names_of(self.param_groups, named_parameters)
        self._compression, self._reduction, self._process_set = compression, reduction, process_set
        self._sparse_as_dense = sparse_as_dense
        self.backward_passes_per_step = backward_passes_per_step
        self._synchronized, self._should_synchronize = False, True
        self._buckets, self._bucket_of, self._sparse, self._passes_left, self._hooks = [], {}, {}, {}, []
        self._made_dense = set()  # what sparse_as_dense has made of sparse gradients, for this step
        if not process_set.included() or (process_set.size() == 1 and not core.ranks_may_change()):
            return
        trained = [parameter for group in self.param_groups for parameter in group["params"] if parameter.requires_grad]
        if isinstance(groups, int) and groups > 0:
            groups = _even_groups(trained, groups)
        for number, parameters in enumerate(_buckets_of(trained, groups or None)):
            bucket = _Bucket(number, parameters, self._names, process_set)
            self._buckets.append(bucket)
            for parameter in parameters:
                self._bucket_of[parameter] = bucket
        if any(parameter.device.type == "cpu" for parameter in trained):
            keep_freed_memory()
        for parameter in trained:
            self._passes_left[parameter] = backward_passes_per_step
            self._add_hook(parameter)

    def _add_hook(self, parameter):
        optimizer = weakref.ref(self)  # a parameter's hooks are no place where the garbage collector looks

        def hook(parameter):
            if optimizer() is not None:
                optimizer()._gradient_is_complete(parameter)

        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))
        else:  # before torch 2.1: the node that accumulates, which lives as long as somebody has it
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            of_node = weakref.ref(parameter)
            node.register_hook(lambda *_: hook(of_node()))
            self._hooks.append(node)

    def _gradient_is_complete(self, parameter):
        left = self._passes_left[parameter]
        if left <= 0:
            raise AssertionError("Gradients were computed more than backward_passes_per_step times before call to step(). "
                                 "Increase backward_passes_per_step to accumulate gradients locally.")
        self._passes_left[parameter] = left - 1
        if left == 1:
            self._give(parameter)

    def _give(self, parameter):
        if parameter.grad is not None and parameter.grad.is_sparse:
            if not self._sparse_as_dense:
                self._sparse[parameter] = mpi_ops.sparse_allreduce_async(
                    parameter.grad, self._names[parameter], self._reduction["op"], self._process_set)
                return
            self._densify(parameter)
        bucket = self._bucket_of[parameter]
        bucket.take(parameter)
        if not bucket.missing:
            bucket.begin(self._compression, self._reduction, self._process_set)

    def _densify(self, parameter):
        parameter.grad = parameter.grad.to_dense()
        self._made_dense.add(parameter)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on gradients are averaged after so many backwards."""
        self.backward_passes_per_step = passes
        self._begin_passes()

    def _begin_passes(self):
        for parameter in self._passes_left:
            self._passes_left[parameter] = self.backward_passes_per_step

    def load_state_dict(self, *arguments: Any, **named: Any) -> None:
        """As the optimizer's own; gradients that are under way are let go of, as after a collective that has failed."""
        self._forget()
        return super(self.__class__, self).load_state_dict(*arguments, **named)

    def _forget(self):
        for bucket in self._buckets:
            bucket.forget()
        self._sparse.clear()
        self._made_dense.clear()
        self._begin_passes()
        self._synchronized = False

    def synchronize(self) -> None:
        """Returns when all gradients are averaged, those of backwards that are fewer than backward_passes_per_step, too."""
        try:
            self._average()
        except Exception:
            self._forget()
            raise
        self._begin_passes()
        self._synchronized = True

    def _average(self):
        for bucket in self._buckets:
            if bucket.handle is not None:
                continue
            for parameter in [one for one in bucket.parameters if one in bucket.missing]:
                if parameter in self._sparse:
                    bucket.missing.discard(parameter)
                    bucket.slots[parameter].zero_()
                else:
                    if parameter.grad is not None and parameter.grad.is_sparse:
                        self._densify(parameter)
                    bucket.take(parameter)
            bucket.begin(self._compression, self._reduction, self._process_set)
        for bucket in self._buckets:
            bucket.finish(self._compression)
        for parameter, finish in self._sparse.items():
            parameter.grad = finish()
        self._sparse.clear()
        for parameter in self._made_dense:
            parameter.grad = parameter.grad.to_sparse(1)
        self._made_dense.clear()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """`with optimizer.skip_synchronize(): optimizer.step()` after optimizer.synchronize(), to clip between them."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Averages what is not averaged yet, then the optimizer's own step(). Returns what that returns."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                              "optimizer.synchronize(). This can cause training slowdown. You may want to consider using "
                              "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code.")
            self.synchronize()
        self._synchronized = False
        return super(self.__class__, self).step(closure)

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """As the optimizer's own. Raises AssertionError while gradients are under way."""
        if any(bucket.handle is not None for bucket in self._buckets) or self._sparse:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                                 "optimizer.synchronize(). This is prohibited as it can cause a race condition.")
        return super(self.__class__, self).zero_grad(*arguments, **named)


class _AdasumOptimizer(torch.optim.Optimizer):
    """What DistributedOptimizer(op=Adasum) makes of an optimizer's class: each rank takes a step of its own, and the steps are brought
    together. Nothing is sent in backward."""

    def _begin_adasum(self, named_parameters, compression, process_set):
        self._names, self._compression, self._process_set = _names_of(self.param_groups, named_parameters), compression, process_set

    backward_passes_per_step = 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Kept: each step() takes what the passes before it have added up."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Nothing: steps are brought together, not gradients."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError: there is nothing to skip."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """This rank's own step, brought together with the others'. Returns what the optimizer's own step() returns."""
        if not self._process_set.included() or self._process_set.size() == 1:
            return super(self.__class__, self).step(closure)
        trained = [parameter for group in self.param_groups for parameter in group["params"] if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in trained]
        loss = super(self.__class__, self).step(closure)
        try:
            steps = [parameter.detach() - start for parameter, start in zip(trained, before)]
            self._bring_together(trained, steps)
        except Exception:
            steps = [torch.zeros_like(start) for start in before]
            raise
        finally:
            with torch.no_grad():
                for parameter, start, one in zip(trained, before, steps):
                    parameter.copy_(start + one)
        return loss

    def _bring_together(self, trained, steps):
        by_type = {}
        for index, step in enumerate(steps):
            by_type.setdefault(step.dtype, []).append(index)
        for dtype, indices in by_type.items():
            sent, contexts = zip(*(self._compression.compress(steps[index]) for index in indices))
            made = mpi_ops.grouped_allreduce(list(sent), op=Adasum, process_set=self._process_set,
                                             name=f"step of {self._names[trained[indices[0]]]} {dtype}")
            for index, one, context in zip(indices, made, contexts):
                steps[index] = self._compression.decompress(one, context)


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
                         compression: type[Compressor] = Compression.none, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: int | list[list[torch.Tensor]] | None = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> _DistributedOptimizer:
    """`optimizer` again, of a class derived from its own, whose gradients are averaged over all ranks during backward.

    named_parameters: model.named_parameters(), for messages. compression: Compression.none, fp16, bf16, or a Compressor of your own,
    which is given several gradients at once. backward_passes_per_step: how many backwards add gradients up before they are averaged.
    op: Average, Sum, or Adasum, of each rank's own step. gradient_predivide_factor: a part of the division by the ranks that comes before the sum. groups: how many
    groups of gradients travel together, or lists of parameters; 0: as suits. sparse_as_dense: sparse gradients travel dense.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups` and will be removed", DeprecationWarning)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    _require_groups(groups)
    methods = _AdasumOptimizer if op == Adasum else _DistributedOptimizer
    names = {name: value for name, value in methods.__dict__.items() if name not in ("__dict__", "__weakref__")}
    derived: Any = type(optimizer.__class__.__name__, (optimizer.__class__,), {**names, "__module__": optimizer.__class__.__module__})
    made = derived.__new__(derived)
    # Its groups, options and state, also where its constructor takes other arguments; not a step() that a scheduler has put there.
    made.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name not in ("step", "zero_grad")})
    reduction = {"op": op, "prescale_factor": 1.0 / gradient_predivide_factor, "postscale_factor": gradient_predivide_factor}
    if op == Adasum:
        made._begin_adasum(named_parameters, compression, process_set)
        made.backward_passes_per_step = backward_passes_per_step
    else:
        made._begin_averaging(named_parameters, compression, backward_passes_per_step, reduction, groups, sparse_as_dense, process_set)
    return made
