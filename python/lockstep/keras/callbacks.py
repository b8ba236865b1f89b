"""Callbacks of Keras, 2 and 3, for training on several ranks."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.functions import broadcast_variables

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    import keras


def _variables_of(optimizer: tf.keras.optimizers.Optimizer) -> list[tf.Variable | keras.Variable]:
    """Keras 2's older optimizers have a function, all others a list."""
    found = optimizer.variables
    return list(found() if callable(found) else found)


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """After the first batch, when all variables are there, the root's are those of all ranks: of model and optimizer, but for
    local_variables."""

    def __init__(self, root_rank: int, device: str = "",
                 local_variables: Iterable[tf.Variable | keras.Variable] | tf.Variable | None = None) -> None:
        super().__init__()
        self._root_rank, self._is_done, self._local = root_rank, False, set()
        for variable in [local_variables] if hasattr(local_variables, "assign") else local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: tf.Variable | keras.Variable) -> None:
        """This one each rank has for itself."""
        self._local.add(id(var))

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Once: gives all ranks the root's variables."""
        if self._is_done:
            return
        self._is_done = True
        if not tf.executing_eagerly():
            from lockstep.tensorflow.sessions import broadcast_global_variables
            tf.compat.v1.keras.backend.get_session().run(broadcast_global_variables(self._root_rank))
            return
        broadcast_variables([one for one in self.model.variables if id(one) not in self._local], self._root_rank)
        broadcast_variables(_variables_of(self.model.optimizer), self._root_rank)

    on_train_batch_end = on_batch_end


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """At the end of each epoch metrics are averages over all ranks. It comes before callbacks that read them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Puts the averages into `logs`, in place of this rank's numbers. Collective: all ranks have the same names in it."""
        logs = {} if logs is None else logs
        for name in sorted(logs):
            if isinstance(logs[name], (int, float)) or getattr(logs[name], "shape", None) == ():
                value = mpi_ops.allreduce_dense(tf.constant(float(logs[name]), tf.float64), f"metric.{name}")
                logs[name] = float(value.numpy())


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Multiplies `initial_lr` by `multiplier`, a function of the epoch, or a number to the power of the epochs since start_epoch, from
    start_epoch on and before end_epoch; what is no staircase gets fractions of epochs, each batch. Momentum is corrected for the
    change, unless momentum_correction is off."""

    _end: Any  # numbers; None where there is none, or not yet
    _steps: Any
    _epoch: Any
    _momentum: Any

    def __init__(self, initial_lr: float, multiplier: float | Callable[[float], float], start_epoch: int = 0, end_epoch: int | None = None,
                 staircase: bool = True, momentum_correction: bool = True, steps_per_epoch: int | None = None) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self._initial, self._start, self._end = initial_lr, start_epoch, end_epoch
        self._staircase = staircase
        self._multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self._corrects_momentum, self._steps, self._epoch, self._momentum = momentum_correction, steps_per_epoch, None, None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raises ValueError where fractions of epochs are asked for, and nobody says how many steps an epoch has."""
        self._steps = self._steps or self.params.get("steps")
        if not self._staircase and not self._steps:
            raise ValueError("Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter.")

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keeps the epoch's number, for its batches."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the learning rate, and corrects the momentum."""
        if self._epoch < self._start or (self._end is not None and self._epoch >= self._end):
            return
        if self._staircase and batch == 0:
            self._adjust(self._epoch)
        elif not self._staircase:
            self._adjust(self._epoch + float(batch) / self._steps)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the correction of the momentum back."""
        if self._momentum is not None:
            self.model.optimizer.momentum, self._momentum = self._momentum, None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Puts the learning rate into `logs`, as "lr"."""
        if logs is not None:
            logs["lr"] = float(tf.convert_to_tensor(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before = float(tf.convert_to_tensor(optimizer.learning_rate))
        rate = self._initial * self._multiplier(epoch)
        optimizer.learning_rate = rate
        # A number is part of the function that was traced; a variable can be changed.
        if self._corrects_momentum and before and isinstance(getattr(optimizer, "momentum", None), tf.Variable):
            self._momentum = float(optimizer.momentum)
            optimizer.momentum = self._momentum * rate / before


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From the learning rate of one rank to `initial_lr`, which is that of all, over the first epochs."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: int | None = None,
                 verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / self._steps  # so that the last batch has the whole rate
            return 1.0 / mpi_ops.size() * (epoch * (mpi_ops.size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, start_epoch=0, end_epoch=warmup_epochs, staircase=False,
                         momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch)
        self._verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Says with the last of the epochs, where verbose, what the learning rate has become."""
        super().on_epoch_end(epoch, logs)
        if epoch == self._end - 1 and self._verbose > 0:
            rate = float(tf.convert_to_tensor(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint that keeps the best model alone."""

    def __init__(self, filepath: str | os.PathLike[str] | None = None, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto",
                 save_freq: int | str = "epoch") -> None:
        super().__init__(filepath=filepath or "best_model.keras", monitor=monitor, verbose=verbose, save_best_only=True,
                         save_weights_only=False, mode=mode, save_freq=save_freq)
