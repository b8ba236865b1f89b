"""Optimizers of tf.compat.v1.train and of Keras whose gradients are those of all ranks."""
import tensorflow as tf

from lockstep.common.process_sets import global_process_set
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.compression import Compression
from lockstep.tensorflow.gradients import Reducer


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Of tf.compat.v1.train: compute_gradients() gives those of all ranks."""

    def __init__(self, optimizer, name, use_locking, reducer):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer, self._reducer = optimizer, reducer

    def register_local_var(self, variable):
        """The gradient of this variable stays this rank's own."""
        self._reducer.leave_out(variable)

    def compute_gradients(self, *arguments, **named):
        pairs = self._optimizer.compute_gradients(*arguments, **named)
        gradients, variables = zip(*pairs)
        return list(zip(self._reducer(gradients, variables), variables))

    def apply_gradients(self, *arguments, **named):
        return self._optimizer.apply_gradients(*arguments, **named)

    def get_slot(self, *arguments, **named):
        return self._optimizer.get_slot(*arguments, **named)

    def get_slot_names(self, *arguments, **named):
        return self._optimizer.get_slot_names(*arguments, **named)

    def variables(self, *arguments, **named):
        return self._optimizer.variables(*arguments, **named)


class _KerasMethods:
    """What a Keras optimizer of any version has in place of its own."""

    def register_local_var(self, variable):
        """The gradient of this variable stays this rank's own."""
        self._lockstep.leave_out(variable)

    def _reduced(self, gradients, variables):
        return self._lockstep(gradients, variables)


class _Keras3Methods(_KerasMethods):
    def apply(self, grads, trainable_variables=None):
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        return super(self._lockstep_class, self).apply(self._reduced(grads, variables), trainable_variables)


class _Keras2Methods(_KerasMethods):
    def apply_gradients(self, grads_and_vars, *arguments, **named):
        pairs = list(grads_and_vars)
        if pairs:
            gradients, variables = zip(*pairs)
            pairs = list(zip(self._reduced(gradients, variables), variables))
        return super(self._lockstep_class, self).apply_gradients(pairs, *arguments, **named)


def wrapped_class(base, reducer):
    """A class of optimizers that are `base` in all but this; saved models name `base` for them."""
    methods = _Keras3Methods if hasattr(base, "apply") and not hasattr(base, "_aggregate_gradients") and _is_keras_3() else _Keras2Methods
    names = [name for parent in reversed(methods.__mro__[:-1]) for name in vars(parent)]
    made = type(base.__name__, (base,), {name: getattr(methods, name) for name in names if not name.startswith("__")})
    made.__module__, made.__qualname__ = base.__module__, base.__qualname__
    made._lockstep, made._lockstep_class, made._HAS_AGGREGATE_GRAD = reducer, made, True
    return made


def _is_keras_3():
    return tf.keras.__version__.startswith("3") if hasattr(tf.keras, "__version__") else False


def wrap_keras(optimizer, reducer):
    """A new optimizer of the same configuration."""
    return wrapped_class(type(optimizer), reducer).from_config(optimizer.get_config())


def DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense="", device_sparse="", compression=Compression.none,
                         sparse_as_dense=False, backward_passes_per_step=1, op=mpi_ops.Average, gradient_predivide_factor=1.0,
                         average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global_process_set,
                         scale_local_gradients=True):
    """An optimizer whose gradients are the averages over all ranks (op: Average, Sum): of tf.compat.v1.train, or of Keras."""
    if backward_passes_per_step != 1:
        raise NotImplementedError("backward_passes_per_step: Keras 3 has gradient_accumulation_steps in its optimizers")
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = Reducer(name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
                      process_set)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _DistributedOptimizer(optimizer, name, use_locking, reducer)
    if isinstance(optimizer, (tf.keras.optimizers.Optimizer, getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).Optimizer)):
        return wrap_keras(optimizer, reducer)
    raise ValueError(f"{optimizer!r} is neither an optimizer of tf.compat.v1.train nor one of Keras")
