"""Sets of ranks that call collectives among themselves, under Horovod's names."""
from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import core

if TYPE_CHECKING:
    from collections.abc import Iterable


class ProcessSet:
    """Some ranks of the world. Before init(), in its `process_sets`, or afterwards by add_process_set().

    process_set_id: the same on all ranks, once it is known there; None before.
    """

    def __init__(self, ranks: Iterable[int] = ()) -> None:
        self.ranks = sorted(int(rank) for rank in ranks)
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"a process set with a rank twice: {self.ranks}")
        self.process_set_id: int | None = None
        self._number: int | None = None  # of lockstep_c.h; None on ranks that are not in it

    def _require_known(self) -> None:
        if self.process_set_id is None:
            raise ValueError(f"{self} is not known yet: pass it to init() or add_process_set()")

    def number(self) -> int:
        """For calls: the set's number in this process. Raises ValueError where this rank is not in it."""
        self._require_known()
        if self._number is None:
            raise ValueError(f"rank {core.place(core.WORLD).rank} is not in {self}; only its members call its collectives")
        return self._number

    def included(self) -> bool:
        """Whether this rank is in it."""
        self._require_known()
        return self._number is not None

    def rank(self) -> int:
        """This rank's number in it."""
        return core.place(self.number()).rank

    def size(self) -> int | None:
        """How many ranks it has; None while it is not known."""
        return None if self.process_set_id is None else len(self.ranks)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    def number(self) -> int:
        return core.WORLD

    def included(self) -> bool:
        return True


global_process_set = _GlobalProcessSet()
_known: dict[int, ProcessSet] = {}  # by id
_next_id = 1


def begin(process_sets: Iterable[ProcessSet | Iterable[int]] | None) -> None:
    """After init()."""
    global _next_id
    end()
    global_process_set.ranks = list(range(core.place(core.WORLD).size))
    global_process_set.process_set_id = 0
    _known[0] = global_process_set
    for made in process_sets or ():
        add_process_set(made)


def end() -> None:
    """After shutdown()."""
    global _next_id
    for known in _known.values():
        known.process_set_id = known._number = None
    _known.clear()
    _next_id = 1


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes it known: a ProcessSet, or a list of ranks. All ranks call it, in the same order. Returns the ProcessSet."""
    global _next_id
    if not core.is_initialized():
        raise ValueError("init() comes before add_process_set()")
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made} is known already")
    for known in _known.values():
        if known.ranks == made.ranks:
            raise ValueError(f"a process set of the ranks {made.ranks} is known already: {known}")
    if not made.ranks or made.ranks[0] < 0 or made.ranks[-1] >= global_process_set.size():  # type: ignore[operator]  # it is known
        raise ValueError(f"{made} has ranks that the world, of {global_process_set.size()}, has not")
    if core.place(core.WORLD).rank in made.ranks:
        made._number = core.new_set(made.ranks)
    made.process_set_id = _next_id
    _known[_next_id] = made
    _next_id += 1
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets it. All ranks call it. False for the global one, and for one that is not known."""
    if process_set.process_set_id in (None, 0):
        return False
    if process_set._number is not None:
        core.free_set(process_set._number)
    del _known[process_set.process_set_id]
    process_set.process_set_id = process_set._number = None
    return True


def known(process_set_id: int) -> ProcessSet:
    """The set of this number. Raises KeyError."""
    return _known[process_set_id]


def process_set_ids_and_ranks() -> dict[int, list[int]]:
    """{id: ranks} of all that are known."""
    return {number: list(known.ranks) for number, known in _known.items()}
