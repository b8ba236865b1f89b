"""Collectives on values: numbers, lists and arrays of numpy."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from lockstep.tensorflow import gradients, mpi_ops
from lockstep.tensorflow.compression import Compression, Compressor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def _value(tensor: tf.Tensor) -> np.ndarray | np.generic:
    return tensor.numpy() if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session().run(tensor)


def allreduce(value: ArrayLike, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, op: int | None = None,
              compression: type[Compressor] = Compression.none) -> np.ndarray | np.generic:
    """The values of all ranks combined."""
    return _value(gradients.allreduce(tf.constant(value), average, compression=compression, op=op, prescale_factor=prescale_factor,
                                      postscale_factor=postscale_factor, name=name or "value"))


def allgather(value: ArrayLike, name: str | None = None) -> np.ndarray | np.generic:
    """The values of all ranks one after another along the first dimension."""
    return _value(mpi_ops.allgather(np.atleast_1d(value), name or "value"))


def broadcast(value: ArrayLike, root_rank: int, name: str | None = None) -> np.ndarray | np.generic:
    """The root's value."""
    return _value(mpi_ops.broadcast(tf.constant(value), root_rank, name or "value"))


def reducescatter(value: ArrayLike, name: str | None = None, op: int = mpi_ops.Average) -> np.ndarray | np.generic:
    """This rank's part of the values of all ranks combined."""
    return _value(mpi_ops.reducescatter(tf.constant(value), op, name or "value"))
