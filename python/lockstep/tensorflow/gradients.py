"""Gradients of all ranks combined: what the tape and the optimizers have in common."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep import core
from lockstep.common.process_sets import ProcessSet, global_process_set
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.compression import Compression, Compressor

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    import keras
    from tensorflow.types.experimental import TensorLike

_GROUP_BYTES = 64 << 20  # of gradients that are reduced at once


def allreduce(tensor: TensorLike | tf.IndexedSlices, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
              compression: type[Compressor] = Compression.none, op: int | None = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, name: str | None = None, process_set: ProcessSet = global_process_set,
              ignore_name_scope: bool = False) -> tf.Tensor | tf.IndexedSlices:
    """The tensors of all ranks combined, of the same shape: Average (the default), Sum, Min, Max, Product. Has a gradient. Of IndexedSlices
    the rows of all ranks are gathered."""
    op = mpi_ops.op_of(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        if op not in (mpi_ops.Average, mpi_ops.Sum):
            raise NotImplementedError("tf.IndexedSlices can be averaged and summed; for others pass sparse_as_dense=True")
        values = mpi_ops.allgather(tensor.values, None if name is None else name + ".values", process_set=process_set)
        indices = mpi_ops.allgather(tensor.indices, None if name is None else name + ".indices", process_set=process_set)
        scale = prescale_factor * postscale_factor / (process_set.size() if op == mpi_ops.Average else 1)  # type: ignore[operator]
        if scale != 1.0:
            values = values * tf.cast(scale, values.dtype)
        return tf.IndexedSlices(values, indices, dense_shape=tensor.dense_shape)
    compressed, context = compression.compress(mpi_ops.tensor_of(tensor))
    made = mpi_ops.allreduce_dense(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(made, context)


def grouped_allreduce(tensors: Sequence[TensorLike | tf.IndexedSlices], average: bool | None = None, device_dense: str = "",
                      device_sparse: str = "", compression: type[Compressor] = Compression.none, op: int | None = None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
                      ignore_name_scope: bool = False, name: str | None = None) -> list[tf.Tensor | tf.IndexedSlices]:
    """As allreduce, of several tensors, none of which begins before all are there on all ranks."""
    op = mpi_ops.op_of(average, op)
    if not tensors:
        return []
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        return [allreduce(tensor, None, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor,
                          None if name is None else f"{name}.{index}", process_set) for index, tensor in enumerate(tensors)]
    compressed, contexts = zip(*(compression.compress(mpi_ops.tensor_of(tensor)) for tensor in tensors))
    made = mpi_ops.grouped_dense(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return [compression.decompress(one, context) for one, context in zip(made, contexts)]


def reducescatter(tensor: TensorLike, device_dense: str = "", compression: type[Compressor] = Compression.none, op: int = mpi_ops.Average,
                  name: str | None = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> tf.Tensor:
    """The tensors of all ranks combined, of which each gets its part of the first dimension. Has a gradient."""
    compressed, context = compression.compress(mpi_ops.tensor_of(tensor))
    made = mpi_ops.reducescatter(compressed, op, name, prescale_factor, postscale_factor, process_set=process_set)
    return compression.decompress(made, context)


def grouped_reducescatter(tensors: Sequence[TensorLike], device_dense: str = "", compression: type[Compressor] = Compression.none,
                          op: int = mpi_ops.Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> list[tf.Tensor]:
    """As reducescatter, of several tensors, each of which may begin before the others are there."""
    if not tensors:
        return []
    compressed, contexts = zip(*(compression.compress(mpi_ops.tensor_of(tensor)) for tensor in tensors))
    made = mpi_ops.grouped_reducescatter(compressed, op, None, prescale_factor, postscale_factor, process_set=process_set)
    return [compression.decompress(one, context) for one, context in zip(made, contexts)]


class Reducer:
    """Combines lists of gradients, as a program has asked for when it wrapped its tape or optimizer."""

    _local: set[Hashable]
    _process_set: Any  # whose size is known

    def __init__(self, name: str, device_dense: str = "", device_sparse: str = "", compression: type[Compressor] = Compression.none,
                 sparse_as_dense: bool = False, op: int = mpi_ops.Average, gradient_predivide_factor: float = 1.0,
                 num_groups: int = 0, groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                 scale_local: bool = True) -> None:
        if gradient_predivide_factor != 1.0 and op != mpi_ops.Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if groups is not None and not (isinstance(groups, list) or (isinstance(groups, int) and groups >= 0)):
            raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
        mpi_ops.reduce_op_of(op)
        self._name, self._compression, self._sparse_as_dense, self._op = name, compression, sparse_as_dense, op
        self._predivide, self._process_set = gradient_predivide_factor, process_set
        self._groups = groups if groups is not None else num_groups
        self._local, self._scale_local = set(), scale_local  # variables whose gradients are this rank's own, divided by the ranks or not

    def leave_out(self, variable: tf.Variable | keras.Variable) -> None:
        """The gradient of this variable stays this rank's own."""
        self._local.add(_identity(variable))

    def has_left_out(self, variable: tf.Variable | keras.Variable) -> bool:
        """Whether leave_out() was asked for it."""
        return _identity(variable) in self._local

    def _scales(self):
        """Divided before the sum and after it, together by the number of ranks."""
        if self._predivide == 1.0:
            return self._op, 1.0, 1.0
        return mpi_ops.Sum, 1.0 / self._predivide, self._predivide / self._process_set.size()

    def own_name(self) -> str:
        """Of the next reduction in this graph."""
        return mpi_ops.unique_in_graph(self._name)

    def __call__(self, gradients: Iterable[tf.Tensor | tf.IndexedSlices | None], variables: Iterable[tf.Variable | keras.Variable],
                 name: str | None = None) -> list[tf.Tensor | tf.IndexedSlices | None]:
        """The gradients of all ranks for these variables, one for each; None where there is none. name: an own_name(), taken outside of
        the branch of a condition, which is a graph of its own."""
        gradients, variables = list(gradients), list(variables)
        if self._process_set.size() == 1 and not core.ranks_may_change():
            return gradients
        gradients = self.densified(gradients)
        op, prescale, postscale = self._scales()
        own_name = name or self.own_name()
        made = list(gradients)
        dense = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self.has_left_out(variable):
                # As if the others' part of it were zeros: a sum over the ranks' batches is divided as for all variables.
                made[index] = gradient * (1 / self._process_set.size()) if self._scale_local else gradient
            elif isinstance(gradient, tf.IndexedSlices):
                made[index] = allreduce(gradient, op=op, prescale_factor=prescale, postscale_factor=postscale,
                                        name=f"{own_name}.{index}", process_set=self._process_set)
            else:
                dense.append(index)
        for number, group in enumerate(self._grouped(dense, gradients, variables)):
            reduced = grouped_allreduce([gradients[index] for index in group], compression=self._compression, op=op,
                                        prescale_factor=prescale, postscale_factor=postscale, name=f"{own_name}.group.{number}",
                                        process_set=self._process_set)
            for index, one in zip(group, reduced):
                made[index] = one
        return made

    def densified(self, gradients: Iterable[tf.Tensor | tf.IndexedSlices | None]) -> list[tf.Tensor | tf.IndexedSlices | None]:
        """IndexedSlices as tensors, with sparse_as_dense; else as they are."""
        if not self._sparse_as_dense:
            return list(gradients)
        return [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]

    def _grouped(self, dense, gradients, variables):
        """The same on all ranks, since it follows from the variables alone."""
        if isinstance(self._groups, list):
            number_of = {_identity(variable): number for number, group in enumerate(self._groups) for variable in group}
            by_number = {}
            for index in dense:
                number = number_of.get(_identity(variables[index]), ("alone", index))
                by_number.setdefault((number, gradients[index].dtype), []).append(index)
            return list(by_number.values())
        by_type = {}
        for index in dense:
            by_type.setdefault(gradients[index].dtype, []).append(index)
        found = []
        for indices in by_type.values():
            if self._groups > 0:
                size = -(-len(indices) // self._groups)
                found += [indices[begin:begin + size] for begin in range(0, len(indices), size)]
                continue
            size = 0
            for index in indices:
                count = (gradients[index].shape.num_elements() or 0) * gradients[index].dtype.size
                if size == 0 or size + count > _GROUP_BYTES:
                    found.append([])
                    size = 0
                found[-1].append(index)
                size += max(count, 1)
        return found


def _identity(variable: tf.Variable | keras.Variable) -> Hashable:
    return variable.ref() if hasattr(variable, "ref") else id(variable)
