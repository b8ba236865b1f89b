"""Horovod's elastic module for torch (lockstep.common.elastic)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.common import elastic as _common
from lockstep.common.elastic import ObjectState, State  # noqa: F401
from lockstep.torch import mpi_ops
from lockstep.torch.elastic.sampler import ElasticSampler  # noqa: F401
from lockstep.torch.elastic.state import TorchState  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Result = TypeVar("_Result")


def _reset() -> None:
    _common.reset()
    mpi_ops.reset_names()


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """A function of a State and other arguments: after HorovodInternalError it begins again, from the last commit on."""
    return _common.run_fn(func, _reset)
