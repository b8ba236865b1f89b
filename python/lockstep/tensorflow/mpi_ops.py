"""Collectives on TensorFlow's tensors, found by their names, under Horovod's names: eager, in tf.function and in sessions.

Each is an operation of TensorFlow (liblockstep_tf.so). Names that are left out: in a graph they are counted as it is built, which has to
happen alike on all ranks; eagerly one call of each kind is under way at a time.
"""
from __future__ import annotations

import functools
import itertools
import pathlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from lockstep import core
from lockstep.common.basics import (  # noqa: F401
    cross_rank, cross_size, init, is_homogeneous, is_initialized, local_rank, local_size, rank, shutdown, size)
from lockstep.common.process_sets import ProcessSet, global_process_set  # noqa: F401
from lockstep.common.reductions import Adasum, Average, Max, Min, Product, Sum, op_of  # noqa: F401
from lockstep.common.reductions import reduce_op as reduce_op_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensorflow.types.experimental import TensorLike


def _load() -> Any:
    operations = pathlib.Path(core.library_path()).parent / "liblockstep_tf.so"
    if not operations.is_file():
        raise ImportError(f"lockstep.tensorflow: there is no {operations}")
    return tf.load_op_library(str(operations))


_ops = _load()
_COLLECTIVES = frozenset(("LockstepAllreduce", "LockstepGroupedAllreduce", "LockstepBroadcast", "LockstepAllgather",
                          "LockstepReducescatter", "LockstepAlltoall"))
# Operations with effects are done one after the other in a tf.function. Collectives of others wait for other ranks, which may begin
# them in another order: they are as TensorFlow's own collectives.
if hasattr(auto_control_deps, "ASYNC_STATEFUL_OPS"):
    auto_control_deps.ASYNC_STATEFUL_OPS = frozenset(auto_control_deps.ASYNC_STATEFUL_OPS) | _COLLECTIVES
_counters: dict[tuple[int | None, str], itertools.count[int]] = {}
_mutex = threading.Lock()


def _name_of(kind: str, name: str | None, process_set: ProcessSet) -> str:
    if name is not None:
        return f"{kind}.{name}"
    if tf.executing_eagerly():
        return f"{kind}.eager"
    with _mutex:
        counter = _counters.setdefault((process_set.process_set_id, kind), itertools.count(1))
        return f"{kind}.graph.{next(counter)}"


_used: weakref.WeakKeyDictionary[tf.Graph, dict[str, int]] = weakref.WeakKeyDictionary()  # names by graph


def unique_in_graph(name: str) -> str:
    """`name`, or, where the graph that is being built has it already, another one, the same on all ranks: what goes on at the same time has
    names of its own."""
    if tf.executing_eagerly():
        return name
    with _mutex:
        used = _used.setdefault(tf.compat.v1.get_default_graph(), {})
        used[name] = used.get(name, 0) + 1
        return name if used[name] == 1 else f"{name}.{used[name]}"


def reset_names() -> None:
    """After shutdown(): the next world's ranks begin to count anew."""
    _counters.clear()


def _of_gradient(name: str) -> str:
    return f"{name}.gradient"


def tensor_of(value: TensorLike) -> tf.Tensor:
    """As convert_to_tensor(), of which a tensor's way through takes as long as half of a small operation."""
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


def _scales(prescale: float, postscale: float) -> str:
    return f"{float(prescale)!r} {float(postscale)!r}"


@functools.cache
def _has_other_devices() -> bool:
    return any(device.device_type != "CPU" for device in tf.config.list_logical_devices())


def _collective(make: Callable[..., Any], *inputs: tf.Tensor | Sequence[tf.Tensor], process_set: ProcessSet | _Set, **attributes: Any) -> Any:
    """An operation on this host's memory. Eagerly its caller waits for it anyway, and does so where it is made; there is no choice of
    devices to make where there is one, and making it takes a third of a small operation."""
    is_eager = tf.executing_eagerly()
    if is_eager and not _has_other_devices():
        return make(*inputs, process_set=process_set.number(), waits=True, **attributes)
    with tf.device("/cpu:0"):
        return make(*inputs, process_set=process_set.number(), waits=is_eager, **attributes)


def allreduce_named(tensor: tf.Tensor, name: str, op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet | _Set = global_process_set) -> tf.Tensor:
    """One tensor, under a whole name."""
    return _collective(_ops.lockstep_allreduce, tensor, process_set=process_set, tensor_name=name, reduce_op=reduce_op_of(op),
                       scales=_scales(prescale_factor, postscale_factor))


def allreduce_dense(tensor: TensorLike, name: str | None = None, op: int = Average, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The tensors of all ranks combined, of the same shape and type, no IndexedSlices. Has a gradient."""
    return allreduce_named(tensor_of(tensor), _name_of("allreduce", name, process_set), op, prescale_factor, postscale_factor,
                           process_set)


def grouped_named(tensors: Sequence[tf.Tensor], name: str, op: int, prescale_factor: float, postscale_factor: float,
                  process_set: ProcessSet | _Set) -> list[tf.Tensor]:
    """Tensors of one type, none of which begins before all are there on all ranks."""
    return _collective(_ops.lockstep_grouped_allreduce, tensors, process_set=process_set, tensor_name=name, reduce_op=reduce_op_of(op),
                       scales=_scales(prescale_factor, postscale_factor))


def grouped_dense(tensors: Iterable[TensorLike], name: str | None = None, op: int = Average, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> list[tf.Tensor]:
    """Of any types: one operation for each."""
    tensors = [tensor_of(tensor) for tensor in tensors]
    if not tensors:
        return []
    name = _name_of("grouped_allreduce", name, process_set)
    by_type: dict[tf.DType, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_type.setdefault(tensor.dtype, []).append(index)
    made = [None] * len(tensors)
    for dtype, indices in by_type.items():
        of_type = name if len(by_type) == 1 else f"{name}.{dtype.name}"
        results = grouped_named([tensors[index] for index in indices], of_type, op, prescale_factor, postscale_factor, process_set)
        for index, result in zip(indices, results):
            made[index] = result
    return made


def _known_rows(tensor: tf.Tensor, made: tf.Tensor) -> tf.Tensor:
    """The shape that a graph knows of a result: all but the first dimension is the tensor's."""
    if not tf.executing_eagerly() and tensor.shape.rank is not None:
        made.set_shape([None, *tensor.shape[1:]])
    return made


def allgather(tensor: TensorLike, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The tensors of all ranks one after another along the first dimension, in which they may differ. Has a gradient."""
    tensor = tensor_of(tensor)
    made = _collective(_ops.lockstep_allgather, tensor, process_set=process_set, tensor_name=_name_of("allgather", name, process_set))
    return _known_rows(tensor, made)


def grouped_allgather(tensors: Iterable[TensorLike], name: str | None = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> list[tf.Tensor]:
    """As allgather, of several tensors, each of which may begin before the others are there."""
    name = _name_of("grouped_allgather", name, process_set)
    return [allgather(tensor, f"{name}.{index}", process_set=process_set) for index, tensor in enumerate(tensors)]


def broadcast(tensor: TensorLike, root_rank: int, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The root's tensor, on all ranks. root_rank: in the world. Has a gradient."""
    if root_rank not in process_set.ranks:
        raise tf.errors.InvalidArgumentError(None, None, f"broadcast from rank {root_rank}, which is not in {process_set}")
    return _collective(_ops.lockstep_broadcast, tensor_of(tensor), process_set=process_set,
                       tensor_name=_name_of("broadcast", name, process_set), root=process_set.ranks.index(root_rank))


def alltoall(tensor: TensorLike, splits: TensorLike | None = None, name: str | None = None, ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Rows of the first dimension to each rank, `splits` of them or equally many; what all have sent to this one. With splits also how
    many rows came from each."""
    tensor = tensor_of(tensor)
    given = tf.zeros([0], tf.int32) if splits is None else tf.cast(tf.convert_to_tensor(splits), tf.int32)
    made, received = _collective(_ops.lockstep_alltoall, tensor, given, process_set=process_set,
                                 tensor_name=_name_of("alltoall", name, process_set))
    made = _known_rows(tensor, made)
    return made if splits is None else (made, received)


def reducescatter(tensor: TensorLike, op: int = Average, name: str | None = None, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0, ignore_name_scope: bool = False,
                  process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The tensors of all ranks combined, of which each gets its part of the first dimension. Has a gradient."""
    tensor = tensor_of(tensor)
    made = _collective(_ops.lockstep_reducescatter, tensor, process_set=process_set,
                       tensor_name=_name_of("reducescatter", name, process_set), reduce_op=reduce_op_of(op),
                       scales=_scales(prescale_factor, postscale_factor))
    return _known_rows(tensor, made)


def grouped_reducescatter(tensors: Iterable[TensorLike], op: int = Average, name: str | None = None, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0, ignore_name_scope: bool = False,
                          process_set: ProcessSet = global_process_set) -> list[tf.Tensor]:
    """As reducescatter, of several tensors, each of which may begin before the others are there."""
    name = _name_of("grouped_reducescatter", name, process_set)
    return [reducescatter(tensor, op, f"{name}.{index}", prescale_factor, postscale_factor, process_set=process_set)
            for index, tensor in enumerate(tensors)]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have come here."""
    core.submit(process_set.number(), "barrier", core.NAMED_BARRIER).wait()


def join() -> tf.Tensor:
    """This rank has nothing more to do: until all have joined it takes part in the others' operations with zeros. Returns the rank that
    joined last, an i32 without dimensions."""
    return tf.constant(core.join(core.WORLD), tf.int32)


# ---- Numbers that are asked for when a graph runs ----

def _place(which: int, process_set: ProcessSet | _Set = global_process_set) -> tf.Tensor:
    with tf.device("/cpu:0"):
        return _ops.lockstep_place(which=which, process_set=process_set.number())


def rank_op(name: str | None = None) -> tf.Tensor:
    """rank() of the world, an int32, asked for when the graph runs."""
    return _place(0)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """size() likewise; of another set than the world a constant. Raises KeyError where there is no such set."""
    return _place(1) if process_set_id == 0 else tf.constant(_known(process_set_id).size())


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """local_rank() likewise."""
    return _place(2)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """local_size() likewise."""
    return _place(3)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 where this rank is in the set, else 0: a constant. Raises KeyError where there is no such set."""
    return tf.constant(int(_known(process_set_id).included()))


def _known(process_set_id: int) -> ProcessSet:
    from lockstep.common import process_sets
    return process_sets.known(process_set_id)


# ---- Gradients ----

_OP_OF = {reduce_op_of(op): op for op in (Average, Sum, Adasum, Min, Max, Product)}


class _Set:
    """The set of an operation, as its node has it."""

    def __init__(self, op: tf.Operation) -> None:
        self._number = op.get_attr("process_set")

    def number(self) -> int:
        """As ProcessSet's."""
        return self._number


def _attributes(op: tf.Operation) -> tuple[int, float, float, _Set]:
    prescale, postscale = map(float, op.get_attr("scales").decode().split())
    return (_OP_OF[op.get_attr("reduce_op")], prescale, postscale, _Set(op))


def _gradient_name(op: tf.Operation) -> str:
    return _of_gradient(op.get_attr("tensor_name").decode())


@tf.RegisterGradient("LockstepAllreduce")
def _(op, gradient):
    reduce_op, prescale, postscale, process_set = _attributes(op)
    return allreduce_named(gradient, _gradient_name(op), reduce_op, prescale, postscale, process_set)


@tf.RegisterGradient("LockstepGroupedAllreduce")
def _(op, *gradients):
    reduce_op, prescale, postscale, process_set = _attributes(op)
    return grouped_named(list(gradients), _gradient_name(op), reduce_op, prescale, postscale, process_set)


@tf.RegisterGradient("LockstepBroadcast")
def _(op, gradient):
    process_set = _Set(op)
    averaged = allreduce_named(gradient, _gradient_name(op), Average, process_set=process_set)  # as Horovod has it, also in torch
    is_root = tf.equal(_place(0, process_set), op.get_attr("root"))
    return averaged * tf.cast(is_root, averaged.dtype)


@tf.RegisterGradient("LockstepAllgather")
def _(op, gradient):
    process_set, name = _Set(op), _gradient_name(op)
    averaged = allreduce_named(gradient, name, Average, process_set=process_set)
    mine = tf.shape(op.inputs[0])[:1]
    rows = _collective(_ops.lockstep_allgather, mine, process_set=process_set, tensor_name=name + ".rows")
    begin = tf.reduce_sum(rows[:_place(0, process_set)])
    return tf.reshape(averaged[begin:begin + mine[0]], tf.shape(op.inputs[0]))


@tf.RegisterGradient("LockstepReducescatter")
def _(op, gradient):
    reduce_op, prescale, postscale, process_set = _attributes(op)
    if reduce_op == Sum:  # the same
        prescale = prescale * core.place(process_set.number()).size
    gathered = _collective(_ops.lockstep_allgather, gradient, process_set=process_set, tensor_name=_gradient_name(op))
    return gathered * tf.cast(prescale * postscale, gathered.dtype)


@tf.RegisterGradient("LockstepAlltoall")
def _(op, gradient, _unused):
    process_set = _Set(op)
    back, _ = _collective(_ops.lockstep_alltoall, gradient, op.outputs[1], process_set=process_set, tensor_name=_gradient_name(op))
    shape = tf.shape(op.inputs[0], out_type=tf.int64)
    nowhere = tf.zeros(tf.concat([shape[:1] - tf.shape(back, out_type=tf.int64)[:1], shape[1:]], 0), back.dtype)
    return tf.concat([back, nowhere], 0), None
