"""How gradients are made smaller on their way."""
from __future__ import annotations

import torch

from lockstep.common.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(tensor: torch.Tensor) -> bool:
        return tensor.dtype.is_floating_point

    @staticmethod
    def cast(tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        return tensor.type(to)


class FP16Compressor(_Cast):
    """Floating-point numbers of any size as halves."""

    to = torch.float16


class BF16Compressor(_Cast):
    """The same with the range of f32."""

    to = torch.bfloat16


class Compression:
    """What DistributedOptimizer(compression=...) is given."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
