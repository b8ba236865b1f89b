"""Horovod's elastic module for TensorFlow and Keras (lockstep.common.elastic)."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from lockstep.common import elastic as _common
from lockstep.common.elastic import ObjectState, State  # noqa: F401
from lockstep.common.exceptions import HorovodInternalError
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.functions import broadcast_object, broadcast_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    import keras

    _Result = TypeVar("_Result")


def _raises_horovods(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """What an operation of TensorFlow raises where a collective has failed, as run() knows it."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> _Result:
        try:
            return function(*arguments, **named)
        except (tf.errors.UnknownError, tf.errors.FailedPreconditionError) as error:
            if "Lockstep: " not in str(error):
                raise
            failure = HorovodInternalError(str(error))
            failure.code = "mismatch" if isinstance(error, tf.errors.FailedPreconditionError) else "peer_lost"
            raise failure from error

    return wrapper


def _reset() -> None:
    _common.reset()
    mpi_ops.reset_names()


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A function of a State and other arguments: after a collective has failed it begins again, from the last commit on."""
    return _common.run_fn(_raises_horovods(func), _reset)


class TensorFlowState(ObjectState):
    """`TensorFlowState(variables=..., batch=0)`: variables, and values that can be copied. With a session of TensorFlow 1, the default one
    too, they are its variables: all global ones, unless others are given."""

    _saved_values: list[np.ndarray]

    if TYPE_CHECKING:  # the values are attributes
        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, variables: Iterable[tf.Variable | keras.Variable] | None = None, session: tf.compat.v1.Session | None = None,
                 **values: Any) -> None:
        is_eager = tf.executing_eagerly()
        self._session = None if is_eager else session or tf.compat.v1.get_default_session()
        if not is_eager and self._session is None:
            raise ValueError("TensorFlowState: outside of eager execution it takes a session")
        self._variables = list(variables or (() if is_eager else tf.compat.v1.global_variables()))
        self._broadcast = None if is_eager else broadcast_variables(self._variables, root_rank=0)
        self._saved_values = []
        super().__init__(functools.partial(broadcast_object, session=self._session), mpi_ops.rank, **values)
        self.save()

    def _all_variables(self) -> list[tf.Variable | keras.Variable]:
        return self._variables

    def save(self) -> None:
        """Keeps copies of variables and values, on this rank."""
        variables = self._all_variables()
        self._saved_values = ([np.array(tf.convert_to_tensor(variable)) for variable in variables] if self._session is None
                              else self._session.run(variables))
        super().save()

    def restore(self) -> None:
        """Gives variables and values what was kept last."""
        for variable, value in zip(self._all_variables(), self._saved_values):
            variable.assign(value) if self._session is None else variable.load(value, self._session)
        super().restore()

    @_raises_horovods
    def sync(self) -> None:
        """All ranks go on with rank 0's variables and values. Raises HorovodInternalError where that failed."""
        if self._session is None:
            broadcast_variables(self._all_variables(), root_rank=0)
        else:
            self._session.run(self._broadcast)
        super().sync()
        self.save()

    @_raises_horovods
    def check_host_updates(self) -> None:
        """As State's; raises HorovodInternalError where the ranks could not ask one another."""
        super().check_host_updates()


class TensorFlowKerasState(TensorFlowState):
    """`TensorFlowKerasState(model, optimizer, batch=0)`: of a Keras model, its optimizer (that it was compiled with, unless another is
    given), and values that can be copied."""

    def __init__(self, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer | None = None, backend: Any = None,
                 **values: Any) -> None:
        self.model, self.optimizer = model, optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__(**values)

    def _all_variables(self) -> list[tf.Variable | keras.Variable]:
        found = list(self.model.variables)
        if self.optimizer is not None:
            if hasattr(self.optimizer, "build"):  # who comes anew has no momentum yet, which the others have
                self.optimizer.build(self.model.trainable_variables)
            variables = self.optimizer.variables
            found += variables() if callable(variables) else variables
        return found
