"""How gradients are made smaller on their way."""
from __future__ import annotations

import tensorflow as tf

from lockstep.common.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(tensor: tf.Tensor) -> bool:
        """Whether these are floating-point numbers, which alone are cast."""
        return tensor.dtype.is_floating

    @staticmethod
    def cast(tensor: tf.Tensor, to: tf.DType) -> tf.Tensor:
        """The tensor as one of type `to`."""
        return tf.cast(tensor, to)


class FP16Compressor(_Cast):
    """Floating-point numbers of any size as halves."""

    to = tf.float16


class BF16Compressor(_Cast):
    """The same with the range of f32."""

    to = tf.bfloat16


class Compression:
    """What DistributedOptimizer(compression=...) is given."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
