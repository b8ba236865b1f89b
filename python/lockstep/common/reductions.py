"""How tensors are combined, as Horovod numbers it."""
from __future__ import annotations

from lockstep import core

Average, Sum, Adasum, Min, Max, Product = range(6)
_REDUCE_OPS = {Average: core.AVERAGE, Sum: core.SUM, Min: core.MIN, Max: core.MAX, Product: core.PRODUCT, Adasum: core.ADASUM}


def op_of(average: bool | None, op: int | None) -> int:
    """What a call has asked for by the older `average`, or by `op`."""
    if op is not None:
        if average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        return op
    return Sum if average is False else Average


def reduce_op(op: int) -> int:
    """The core's."""
    if op not in _REDUCE_OPS:
        raise ValueError(f"op {op!r} is none of Average, Sum, Adasum, Min, Max, Product")
    return _REDUCE_OPS[op]
