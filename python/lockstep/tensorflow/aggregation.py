"""Gradients of several backward passes that are added up on each rank, and combined over all ranks with the last of them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import keras

    from lockstep.tensorflow.gradients import Reducer


class Aggregation:
    """counter: how many passes have been added since the last step."""

    _sums: dict[int, tf.Variable]  # by place in the list of gradients

    def __init__(self, passes: int, average: bool, reducer: Reducer) -> None:
        if passes < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        self._passes, self._average, self._reducer, self._sums = passes, average, reducer, {}
        self.counter = tf.Variable(0, trainable=False, name="backward_passes")

    def __call__(self, gradients: Iterable[tf.Tensor | tf.IndexedSlices | None],
                 variables: Sequence[tf.Variable | keras.Variable]) -> list[tf.Tensor | None]:
        """With the last pass the gradients of all ranks and passes; before, what this rank has come to."""
        gradients = self._reducer.densified(gradients)
        if any(isinstance(one, tf.IndexedSlices) for one in gradients):
            raise ValueError("IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False.")
        there = [index for index, one in enumerate(gradients) if one is not None]
        added = [self._sum_of(index, gradients[index], variables[index]).assign_add(gradients[index]) for index in there]
        with tf.control_dependencies([self.counter.assign_add(1), *added]):
            sums = [tf.identity(self._sums[index]) for index in there]
            is_last = tf.equal(tf.identity(self.counter), self._passes)

        name = self._reducer.own_name()

        def whole() -> list[tf.Tensor]:
            made: list[tf.Tensor] = self._reducer(sums, [variables[index] for index in there], name)
            with tf.control_dependencies(made):
                cleared = [self._sums[index].assign(tf.zeros_like(self._sums[index])) for index in there]
                cleared.append(self.counter.assign(0))
            with tf.control_dependencies(cleared):
                return [one / tf.cast(self._passes, one.dtype) if self._average else tf.identity(one) for one in made]

        made = list(gradients)
        if there:
            for index, one in zip(there, tf.cond(is_last, whole, lambda: sums)):
                made[index] = one
        return made

    def _sum_of(self, index: int, gradient: tf.Tensor, variable: tf.Variable | keras.Variable) -> tf.Variable:
        if index not in self._sums:
            with tf.init_scope():
                self._sums[index] = tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False, name=f"sum_of_gradients_{index}")
        return self._sums[index]

    def step(self, gradients: Iterable[tf.Tensor | None], apply: Callable[[], Any], skip: Callable[[], Any]) -> tf.Tensor:
        """apply() after the last pass, else skip(), what a step counts besides. `gradients`: what the call above has made."""
        with tf.control_dependencies([one for one in gradients if one is not None]):
            is_complete = tf.equal(tf.identity(self.counter), 0)

        def done(function: Callable[[], Any]) -> Callable[[], tf.Tensor]:
            def branch() -> tf.Tensor:
                made = function()
                with tf.control_dependencies([made] if isinstance(made, (tf.Operation, tf.Tensor)) else []):
                    return tf.constant(0)
            return branch

        return tf.cond(is_complete, done(apply), done(skip))
