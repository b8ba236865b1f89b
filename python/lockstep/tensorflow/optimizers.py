"""Optimizers of tf.compat.v1.train and of Keras whose gradients are those of all ranks."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep.common.process_sets import ProcessSet, global_process_set
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.aggregation import Aggregation
from lockstep.tensorflow.compression import Compression, Compressor
from lockstep.tensorflow.gradients import Reducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import keras


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Of tf.compat.v1.train: compute_gradients() gives those of all ranks."""

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, name: str, use_locking: bool, reducer: Reducer,
                 aggregation: Aggregation | None) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer, self._reducer, self._agg_helper = optimizer, reducer, aggregation

    def register_local_var(self, variable: tf.Variable) -> None:
        """The gradient of this variable stays this rank's own."""
        self._reducer.leave_out(variable)

    def compute_gradients(self, *arguments: Any, **named: Any) -> list[tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]]:
        """Pairs of gradients, of all ranks, and variables; arguments as the wrapped optimizer's."""
        pairs = self._optimizer.compute_gradients(*arguments, **named)
        gradients, variables = zip(*pairs)
        return list(zip((self._agg_helper or self._reducer)(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]], *arguments: Any,
                        **named: Any) -> tf.Operation | tf.Tensor | tf.Variable | None:
        """Changes the variables by these gradients, which compute_gradients() gave; with several passes after the last of them.
        global_step counts each pass."""
        pairs = list(grads_and_vars)
        global_step = named.get("global_step", arguments[0] if arguments else None)

        def apply() -> tf.Operation | tf.Tensor | tf.Variable | None:
            return self._optimizer.apply_gradients(pairs, *arguments, **named)

        if self._agg_helper is None:
            return apply()
        return self._agg_helper.step([gradient for gradient, _ in pairs], apply,
                                     lambda: None if global_step is None else global_step.assign_add(1, read_value=False))

    def get_slot(self, *arguments: Any, **named: Any) -> tf.Variable | None:
        """The wrapped optimizer's."""
        return self._optimizer.get_slot(*arguments, **named)

    def get_slot_names(self, *arguments: Any, **named: Any) -> list[str]:
        """The wrapped optimizer's."""
        return self._optimizer.get_slot_names(*arguments, **named)

    def variables(self, *arguments: Any, **named: Any) -> list[tf.Variable]:
        """The wrapped optimizer's."""
        return self._optimizer.variables(*arguments, **named)


_Methods: Any = object  # whose methods become those of a class of optimizers


class _KerasMethods(_Methods):
    """What a Keras optimizer of any version has in place of its own."""

    # Of the class that wrapped_class() makes.
    _lockstep: Reducer
    _agg_helper: Aggregation | None
    _lockstep_class: Any

    def register_local_var(self, variable: tf.Variable | keras.Variable) -> None:
        """The gradient of this variable stays this rank's own."""
        self._lockstep.leave_out(variable)

    def _reduced(self, gradients, variables):
        return (self._agg_helper or self._lockstep)(gradients, variables)

    def _step(self, gradients, apply):
        """apply(), unless more backward passes are to come; a pass is an iteration in any case."""
        if self._agg_helper is None:
            return apply()
        return self._agg_helper.step(gradients, apply, lambda: self.iterations.assign(self.iterations + 1))


class _Keras3Methods(_KerasMethods):
    _scales_losses = False  # a LossScaleOptimizer that fit() uses

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss as fit() takes its gradients; apply() then knows that they are scaled."""
        self._lockstep_class._scales_losses = True
        return super(self._lockstep_class, self).scale_loss(loss)

    def apply(self, grads: Iterable[tf.Tensor | tf.IndexedSlices | None],
              trainable_variables: Iterable[tf.Variable | keras.Variable] | None = None) -> tf.Operation | tf.Tensor | tf.Variable | None:
        """Changes the variables by the gradients of all ranks; with several passes after the last of them."""
        if isinstance(self, tf.keras.mixed_precision.LossScaleOptimizer) and not self._scales_losses:
            if not self.built:  # a loop of the program's own, with losses as they are
                self.build(self._trainable_variables if trainable_variables is None else trainable_variables)
            grads = [one if one is None else one * tf.cast(self.dynamic_scale, one.dtype) for one in grads]
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        if self._agg_helper is not None and not self.built:
            self.build(variables)  # not within a condition
        reduced = self._reduced(grads, variables)
        return self._step(reduced, lambda: super(self._lockstep_class, self).apply(reduced, trainable_variables))


class _Keras2Methods(_KerasMethods):
    _is_reduced = False  # by _compute_gradients(), which Keras 2's older optimizers have

    def _compute_gradients(self, *arguments, **named):
        pairs = list(super(self._lockstep_class, self)._compute_gradients(*arguments, **named))
        gradients, variables = zip(*pairs)
        self._is_reduced = True
        return list(zip(self._reduced(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]], *arguments: Any,
                        **named: Any) -> tf.Operation | tf.Tensor | tf.Variable | None:
        """Changes the variables by the gradients of all ranks; with several passes after the last of them."""
        pairs = list(grads_and_vars)
        if pairs and not self._is_reduced:
            gradients, variables = zip(*pairs)
            pairs = list(zip(self._reduced(gradients, variables), variables))
        self._is_reduced = False
        if hasattr(self, "build"):
            with tf.init_scope():
                self.build([variable for _, variable in pairs])
        return self._step([gradient for gradient, _ in pairs],
                          lambda: super(self._lockstep_class, self).apply_gradients(pairs, *arguments, **named))


def wrapped_class(base: type[tf.keras.optimizers.Optimizer], reducer: Reducer,
                  aggregation: Aggregation | None = None) -> type[tf.keras.optimizers.Optimizer]:
    """A class of optimizers that are `base` in all but this; saved models name `base` for them."""
    methods = _Keras3Methods if hasattr(base, "apply") and not hasattr(base, "_aggregate_gradients") and _is_keras_3() else _Keras2Methods
    names = [name for parent in reversed(methods.__mro__[:-1]) for name in vars(parent)]
    made: Any = type(base.__name__, (base,), {name: getattr(methods, name) for name in names if not name.startswith("__")})
    made.__module__, made.__qualname__ = base.__module__, base.__qualname__
    made._lockstep, made._agg_helper, made._lockstep_class, made._HAS_AGGREGATE_GRAD = reducer, aggregation, made, True
    return made


def _is_keras_3() -> bool:
    return tf.keras.__version__.startswith("3") if hasattr(tf.keras, "__version__") else False


def _with_loss_scale(optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.optimizers.Optimizer:
    """In mixed_float16 compile() scales losses by an optimizer around the user's, whose step is left out on ranks with gradients that are
    infinite, so that the others would wait for them. Ours is around that: all ranks see the sum, and decide alike."""
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    if isinstance(optimizer, scaling) or tf.keras.mixed_precision.global_policy().name != "mixed_float16":
        return optimizer
    return scaling(optimizer)


def wrap_keras(optimizer: tf.keras.optimizers.Optimizer, reducer: Reducer,
               aggregation: Aggregation | None) -> tf.keras.optimizers.Optimizer:
    """A new optimizer of the same configuration."""
    optimizer = _with_loss_scale(optimizer)
    return wrapped_class(type(optimizer), reducer, aggregation).from_config(optimizer.get_config())


def DistributedOptimizer(optimizer: tf.compat.v1.train.Optimizer | tf.keras.optimizers.Optimizer, name: str | None = None,
                         use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
                         compression: type[Compressor] = Compression.none, sparse_as_dense: bool = False,
                         backward_passes_per_step: int = 1, op: int = mpi_ops.Average, gradient_predivide_factor: float = 1.0,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> tf.compat.v1.train.Optimizer | tf.keras.optimizers.Optimizer:
    """An optimizer whose gradients are the averages over all ranks (op: Average, Sum, Adasum): of tf.compat.v1.train, or of Keras.

    backward_passes_per_step: how many passes are added up on each rank before the ranks combine them and the variables change;
    average_aggregated_gradients: divided by them. scale_local_gradients: those of register_local_var() are divided by the ranks.
    """
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = Reducer(name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
                      process_set, scale_local_gradients)
    aggregation = None
    if backward_passes_per_step != 1:
        aggregation = Aggregation(backward_passes_per_step, average_aggregated_gradients, reducer)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _DistributedOptimizer(optimizer, name, use_locking, reducer, aggregation)
    if isinstance(optimizer, (tf.keras.optimizers.Optimizer, getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).Optimizer)):
        return wrap_keras(optimizer, reducer, aggregation)
    raise ValueError(f"{optimizer!r} is neither an optimizer of tf.compat.v1.train nor one of Keras")
