"""How gradients are made smaller on their way."""
import torch


class Compressor:
    """What a user's own derives from: two static functions that undo each other."""

    @staticmethod
    def compress(tensor):
        """Returns (what is sent, what decompress() needs)."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


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
