"""How gradients are made smaller on their way."""
import torch

from lockstep.common.compression import Compressor, NoneCompressor


class _Cast(Compressor):
    to = None

    @classmethod
    def compress(cls, tensor):
        return (tensor.type(cls.to), tensor.dtype) if tensor.dtype.is_floating_point else (tensor, None)

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.type(ctx)


class FP16Compressor(_Cast):
    """Floating-point numbers of any size as halves."""

    to = torch.float16


class BF16Compressor(_Cast):
    """The same with the range of f32."""

    to = torch.bfloat16


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
