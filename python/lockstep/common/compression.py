"""How tensors are made smaller on their way: what all frameworks have in common."""
from __future__ import annotations

from typing import Any


class Compressor:
    """What a user's own derives from: two static functions that undo each other."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns (what is sent, what decompress() needs)."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns what compress() was given. ctx: what it has returned beside the tensor."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor as it is."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor as it is."""
        return tensor


class CastCompressor(Compressor):
    """Floating-point numbers as those of type `to`; the frameworks say how."""

    to: Any = None

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether it is of floating-point numbers: others stay as they are."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, to: Any) -> Any:
        """The tensor as one of type `to`."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """(The tensor as one of type `to`, its own type, or None where it stays as it is)."""
        return (cls.cast(tensor, cls.to), tensor.dtype) if cls.is_floating(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The tensor of its own type, `ctx`, again."""
        return tensor if ctx is None else cls.cast(tensor, ctx)
