"""Batch normalization over the batches of all ranks."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.common.process_sets import global_process_set
from lockstep.tensorflow import mpi_ops


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization whose mean and variance, while it trains, are those of all ranks' batches, which may differ in
    size. Layers have the same names on all ranks."""

    def __init__(self, fused: bool | None = False, **options: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        options.setdefault("name", "sync_batch_normalization")
        super().__init__(**options)

    def _moments(self, inputs, *arguments, **named):
        mean, variance = super()._moments(inputs, *arguments, **named)
        if global_process_set.size() == 1:
            return mean, variance
        positional = arguments[2:] if arguments and isinstance(arguments[0], (list, tuple)) else arguments  # Keras 2 has axes before it
        mask = positional[0] if positional else named.get("mask")
        samples = tf.cast(tf.size(inputs), mean.dtype) / tf.cast(tf.size(mean), mean.dtype)
        if mask is not None:
            samples *= tf.reduce_mean(tf.cast(mask, mean.dtype))
        # Of no rows mean and variance are no numbers, and count for nothing.
        weighted = [tf.math.multiply_no_nan(one, tf.ones_like(one) * samples) for one in (mean, variance + tf.square(mean))]
        name = mpi_ops.unique_in_graph(f"sync_batch_norm.{self.name}")
        sums, squares, count = tf.unstack(
            mpi_ops.allreduce_dense(tf.stack([*weighted, tf.ones_like(mean) * samples]), name, mpi_ops.Sum))
        count = tf.maximum(count, 1)
        return sums / count, tf.maximum(squares / count - tf.square(sums / count), 0)
