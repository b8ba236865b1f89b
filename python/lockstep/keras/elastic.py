"""Horovod's elastic module for Keras: a state of model and optimizer, and callbacks that keep it up to date in fit()."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.tensorflow.elastic import TensorFlowKerasState, run  # noqa: F401


class KerasState(TensorFlowKerasState):
    """`KerasState(model, optimizer=None, batch=0, epoch=0)`."""


class CommitStateCallback(tf.keras.callbacks.Callback):
    """Commits the state every so many batches, and at the end of each epoch. It comes last."""

    def __init__(self, state: TensorFlowKerasState, batches_per_commit: int = 1) -> None:
        super().__init__()
        self._state, self._every, self._left = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begins to count batches."""
        self._left = self._every  # alike on all ranks, also where one is new

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits, where this is the batch. Raises HostsUpdatedInterrupt where ranks have come or gone."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            self._state.commit()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits. Raises HostsUpdatedInterrupt where ranks have come or gone."""
        self._state.commit()


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):
    """state.batch is the last batch that is done; an epoch that was broken off has only the rest of its batches."""

    def __init__(self, state: TensorFlowKerasState) -> None:
        super().__init__()
        self._state, self._steps = state, None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Asks anew how many batches an epoch has."""
        self._steps = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Leaves out the batches that are done."""
        if self.params.get("steps"):
            self._steps = self._steps or self.params["steps"]
            self.params["steps"] = self._steps - self._state.batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Keeps the batch's number in the state."""
        self._state.batch = batch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """The next epoch begins with its first batch."""
        self._state.batch = 0


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):
    """state.epoch counts epochs that are done, also those before the last time that training began."""

    def __init__(self, state: TensorFlowKerasState) -> None:
        super().__init__()
        self._state, self._first = state, state.epoch

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Goes on from the state's epoch."""
        self._first = self._state.epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts this epoch."""
        self._state.epoch = self._first + epoch + 1
