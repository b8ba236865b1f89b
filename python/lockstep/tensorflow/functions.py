"""What ranks have to begin with alike: variables and any objects."""
from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from lockstep.common.process_sets import ProcessSet, global_process_set
from lockstep.tensorflow import mpi_ops

try:  # takes functions and classes of the main program, too
    import cloudpickle
except ImportError:
    import pickle as cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import keras


def _name(variable: tf.Variable | keras.Variable, index: int) -> str:
    """What ranks call a variable alike: Keras's names are neither there for all nor different for all."""
    return f"variable.{index}.{getattr(variable, 'path', None) or variable.name}"


def _assigned(variables: list[tf.Variable | keras.Variable], root_rank: int, prefix: str, process_set: ProcessSet) -> list[Any]:
    return [variable.assign(mpi_ops.broadcast(tf.convert_to_tensor(variable), root_rank, prefix + _name(variable, index),
                                              process_set=process_set))
            for index, variable in enumerate(variables)]


def broadcast_variables(variables: Iterable[tf.Variable | keras.Variable], root_rank: int, process_set: ProcessSet = global_process_set,
                        inplace: bool = False) -> tf.Operation | None:
    """The root's values, in the variables of all ranks. In a graph: the operation that does it."""
    assigned = _assigned(list(variables), root_rank, "", process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_(variables: Iterable[tf.Variable | keras.Variable], root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> list[tf.Tensor]:
    """The root's values, in the variables of all ranks, and as tensors."""
    variables = list(variables)
    with tf.control_dependencies(_assigned(variables, root_rank, f"{name or 'broadcast_'}.", process_set)):
        return [tf.identity(variable) for variable in variables]


def _to_array(obj: Any) -> np.ndarray:
    file = io.BytesIO()
    cloudpickle.dump(obj, file)
    return np.frombuffer(file.getvalue(), dtype=np.uint8)


def _from_array(array: np.ndarray) -> Any:
    return cloudpickle.loads(array.tobytes())


def _value(tensor, session):
    return tensor.numpy() if tf.executing_eagerly() else session.run(tensor)


def broadcast_object(obj: Any, root_rank: int = 0, session: tf.compat.v1.Session | None = None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks. It has to be one that pickle (cloudpickle, where it is installed) takes. session: outside of
    eager execution."""
    session = session or _session()
    name = name or "broadcast_object"
    is_root = mpi_ops.rank() == root_rank
    sent: Any = _to_array(obj) if is_root else None
    length = np.array([len(sent) if is_root else 0], dtype=np.int64)
    length = _value(mpi_ops.broadcast(length, root_rank, name + ".length", process_set=process_set), session)
    if not is_root:
        sent = np.zeros(int(length[0]), dtype=np.uint8)
    sent = _value(mpi_ops.broadcast(sent, root_rank, name, process_set=process_set), session)
    return obj if is_root else _from_array(sent)


def broadcast_object_fn(root_rank: int = 0, session: tf.compat.v1.Session | None = None, name: str | None = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """broadcast_object() as a function of the object alone."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(obj: Any, session: tf.compat.v1.Session | None = None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in their order."""
    session = session or _session()
    name = name or "allgather_object"
    mine = _to_array(obj)
    lengths = _value(mpi_ops.allgather(np.array([len(mine)], dtype=np.int64), name + ".lengths", process_set=process_set), session)
    everything = _value(mpi_ops.allgather(mine, name, process_set=process_set), session)
    ends = np.cumsum(lengths)
    return [_from_array(everything[end - length:end]) for end, length in zip(ends, lengths)]


def _session() -> tf.compat.v1.Session | None:
    if tf.executing_eagerly():
        return None
    return tf.compat.v1.get_default_session() or tf.compat.v1.keras.backend.get_session()
