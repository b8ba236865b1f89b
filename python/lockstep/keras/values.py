"""Collectives on values: numbers, lists and arrays of numpy."""
import numpy as np
import tensorflow as tf

from lockstep.tensorflow import gradients, mpi_ops
from lockstep.tensorflow.compression import Compression


def _value(tensor):
    return tensor.numpy() if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session().run(tensor)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=Compression.none):
    """The values of all ranks combined."""
    return _value(gradients.allreduce(tf.constant(value), average, compression=compression, op=op, prescale_factor=prescale_factor,
                                      postscale_factor=postscale_factor, name=name or "value"))


def allgather(value, name=None):
    """The values of all ranks one after another along the first dimension."""
    return _value(mpi_ops.allgather(np.atleast_1d(value), name or "value"))


def broadcast(value, root_rank, name=None):
    """The root's value."""
    return _value(mpi_ops.broadcast(tf.constant(value), root_rank, name or "value"))


def reducescatter(value, name=None, op=mpi_ops.Average):
    """This rank's part of the values of all ranks combined."""
    return _value(mpi_ops.reducescatter(tf.constant(value), op, name or "value"))
