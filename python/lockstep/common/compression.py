"""How tensors are made smaller on their way: what all frameworks have in common."""


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


class CastCompressor(Compressor):
    """Floating-point numbers as those of type `to`; the frameworks say how."""

    to = None

    @staticmethod
    def is_floating(tensor):
        raise NotImplementedError

    @staticmethod
    def cast(tensor, to):
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor):
        return (cls.cast(tensor, cls.to), tensor.dtype) if cls.is_floating(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor, ctx):
        return tensor if ctx is None else cls.cast(tensor, ctx)
