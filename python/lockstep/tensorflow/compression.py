"""How gradients are made smaller on their way."""
import tensorflow as tf

from lockstep.common.compression import Compressor, NoneCompressor


class _Cast(Compressor):
    to = None

    @classmethod
    def compress(cls, tensor):
        return (tf.cast(tensor, cls.to), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Cast):
    """Floating-point numbers of any size as halves."""

    to = tf.float16


class BF16Compressor(_Cast):
    """The same with the range of f32."""

    to = tf.bfloat16


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
