"""The process and its place in the job, under Horovod's names."""
import atexit

from lockstep import core
from lockstep.common import process_sets as sets


def init(comm=None, process_sets=None):
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


def shutdown():
    """Leaves the job; init() joins it anew. Nothing where there is none."""
    sets.end()
    core.shutdown()


def is_initialized():
    return core.is_initialized()


def _place():
    if not core.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return core.place(core.WORLD)


def rank():
    return _place().rank


def size():
    return _place().size


def local_rank():
    """Among the ranks of this host."""
    return _place().local_rank


def local_size():
    return _place().local_size


def cross_rank():
    """Among the ranks of all hosts that have this local rank: the number of this host."""
    return _place().cross_rank


def cross_size():
    return _place().cross_size


def is_homogeneous():
    """Whether all hosts have as many ranks."""
    return bool(_place().is_homogeneous)


def mpi_threads_supported():
    return False


def mpi_built(verbose=False):
    return False


def mpi_enabled():
    return False


def gloo_built(verbose=False):
    """True: programs that ask for a backend without MPI find one."""
    return True


def gloo_enabled():
    return True


def nccl_built(verbose=False):
    return 0


def ddl_built(verbose=False):
    return False


def ccl_built(verbose=False):
    return False


def cuda_built(verbose=False):
    return False


def rocm_built(verbose=False):
    return False


def start_timeline(file_path, mark_cycles=False):
    """Begins a timeline of what all ranks do from now on, which rank 0 writes to `file_path` at stop_timeline(). All ranks call it.

    `lockstep run --timeline FILE` makes one of the whole job. mark_cycles: there are no cycles.
    """
    _place()
    core.start_timeline(file_path)


def stop_timeline():
    """Returns when the timeline's file is there. All ranks call it."""
    _place()
    core.stop_timeline()
