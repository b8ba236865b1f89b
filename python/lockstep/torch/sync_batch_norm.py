"""Batch normalization whose statistics are of all ranks' samples."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.common.process_sets import global_process_set
from lockstep.torch import mpi_ops
from lockstep.torch.mpi_ops import Sum

if TYPE_CHECKING:
    from typing import Any

    from lockstep.common.process_sets import ProcessSet


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.SyncBatchNorm, over any device: input [N, C, ...], at least two samples in all ranks together while it trains."""

    def __init__(self, *arguments: Any, process_set: ProcessSet = global_process_set, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input` normalized, of its shape and type. Collective while it trains."""
        self._check_input_dim(input)
        uses_own = self.training or self.running_mean is None
        if not uses_own or self.process_set.size() == 1:
            return super().forward(input)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        dims = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        count = wide.new_tensor([wide.numel() / wide.shape[1]])
        summed = mpi_ops.allreduce(torch.cat([wide.sum(dims), count]), op=Sum, process_set=self.process_set)
        samples = summed[-1].detach()
        mean = summed[:-1] / samples
        centred = wide - mean.view(shape)  # squares of what is far from zero would leave nothing of their difference
        variance = mpi_ops.allreduce((centred * centred).sum(dims), op=Sum, process_set=self.process_set) / samples
        if self.training and self.track_running_stats:
            with torch.no_grad():
                factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
                unbiased = variance * (samples / torch.clamp(samples - 1, min=1))
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
        made = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            made = made * self.weight.view(shape) + self.bias.view(shape)
        return made.to(input.dtype)
