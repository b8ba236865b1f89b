"""Small helpers that programs for Horovod find under this name."""
from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from lockstep.common.basics import (  # noqa: F401
    ccl_built, ddl_built, gloo_built, mpi_built, nccl_built)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    _Item = TypeVar("_Item")


def is_version_greater_equal_than(version: str, target: str) -> bool:
    """Whether version, "2.15.0", is target or newer; what stands behind the numbers, as in "2.0.0rc1", counts for nothing."""
    if not isinstance(version, str) or not isinstance(target, str) or len(target.split(".")) != 3:
        raise ValueError(f"versions are strings, and the second one has three parts: {version!r}, {target!r}")

    def numbers(text):
        digits = ("".join(char for char in part if char.isdigit()) for part in text.split("+")[0].split(".")[:3])
        return tuple(int(part or 0) for part in digits)

    return numbers(version) >= numbers(target)


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(values: list[_Item], parts: int) -> list[list[_Item]]:
    """`values` in so many lists of about the same length."""
    each, more = divmod(len(values), parts)
    ends = [number * each + min(number, more) for number in range(parts + 1)]
    return [values[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(value: Any) -> bool:
    """Whether iter() takes it."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether this framework ("torch", "tensorflow") can be used."""
    try:
        __import__(f"lockstep.{ext_base_name}")
    except ImportError:
        return False
    return True


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """False: collectives work in main memory."""
    return False


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """The environment with these variables (None: as it is), until the block ends."""
    variables = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)  # type: ignore[arg-type]  # no None is left
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """What a call has asked for, by the older `average` or by `op`."""
    from lockstep.common.reductions import op_of

    return lambda op, average: op_of(average, op)
