"""The process and its place in the job, under Horovod's names."""
from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from lockstep import core
from lockstep.common import process_sets as sets

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Literal

    from lockstep.common.process_sets import ProcessSet


def init(comm: None = None, process_sets: Iterable[ProcessSet | Iterable[int]] | Literal["dynamic"] | None = None) -> None:
    """Joins the job, under whatever started this process (`lockstep run`, torchrun, mpiexec, srun, ... ); alone, a world of one.

    comm: None; communicators of MPI are not taken. process_sets: ProcessSets that are to be known at once.
    """
    if process_sets == "dynamic":  # as they are here in any case
        process_sets = None
    if comm:
        raise ValueError("init(comm=...): communicators and lists of ranks are not taken; give process_sets")
    was_there = core.is_initialized()
    core.init()
    if not was_there:
        try:
            sets.begin(process_sets)
        except Exception:
            shutdown()
            raise
        atexit.unregister(shutdown)
        atexit.register(shutdown)


def shutdown() -> None:
    """Leaves the job; init() joins it anew. Nothing where there is none."""
    sets.end()
    core.shutdown()


def is_initialized() -> bool:
    """Whether this process is in a job: between init() and shutdown()."""
    return core.is_initialized()


def _place() -> core.Place:
    if not core.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return core.place(core.WORLD)


def rank() -> int:
    """This process's number among all ranks."""
    return _place().rank


def size() -> int:
    """How many ranks the world has."""
    return _place().size


def local_rank() -> int:
    """Among the ranks of this host."""
    return _place().local_rank


def local_size() -> int:
    """How many ranks this host has."""
    return _place().local_size


def cross_rank() -> int:
    """Among the ranks of all hosts that have this local rank: the number of this host."""
    return _place().cross_rank


def cross_size() -> int:
    """How many ranks have this local rank: the hosts, where all have as many."""
    return _place().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have as many ranks."""
    return bool(_place().is_homogeneous)


def mpi_threads_supported() -> bool:
    """False: there is no MPI."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """False: there is no MPI."""
    return False


def mpi_enabled() -> bool:
    """False: there is no MPI."""
    return False


def gloo_built(verbose: bool = False) -> bool:
    """True: programs that ask for a backend without MPI find one."""
    return True


def gloo_enabled() -> bool:
    """True, as gloo_built()."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """0, NCCL's version where there is none."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """False: there is no DDL."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """False: there is no oneCCL."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """False: collectives work in main memory."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """False: collectives work in main memory."""
    return False


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins a timeline of what all ranks do from now on, which rank 0 writes to `file_path` at stop_timeline(). All ranks call it.

    `lockstep run --timeline FILE` makes one of the whole job. mark_cycles: there are no cycles.
    """
    _place()
    core.start_timeline(file_path)


def stop_timeline() -> None:
    """Returns when the timeline's file is there. All ranks call it."""
    _place()
    core.stop_timeline()
