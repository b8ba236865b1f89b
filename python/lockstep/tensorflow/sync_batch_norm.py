"""Batch normalization over the batches of all ranks."""
import tensorflow as tf

from lockstep.common.process_sets import global_process_set
from lockstep.tensorflow import mpi_ops


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization whose mean and variance, while it trains, are those of all ranks' batches, which may differ in
    size. Layers have the same names on all ranks."""

    def __init__(self, fused=False, **options):
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        options.setdefault("name", "sync_batch_normalization")
        super().__init__(**options)

    def _moments(self, inputs, *arguments, **named):
        mean, variance = super()._moments(inputs, *arguments, **named)
        ranks = global_process_set.size()
        if ranks == 1:
            return mean, variance
        samples = tf.cast(tf.size(inputs), mean.dtype) / tf.cast(tf.size(mean), mean.dtype)
        mine = tf.stack([mean * samples, (variance + tf.square(mean)) * samples, tf.ones_like(mean) * samples])
        sums, squares, count = tf.unstack(mpi_ops.allreduce_dense(mine, f"sync_batch_norm.{self.name}", mpi_ops.Sum))
        return sums / count, tf.maximum(squares / count - tf.square(sums / count), 0)
