"""How the processes of a default group become a Lockstep world: as their launcher has it, or through the group's own store."""
from __future__ import annotations

import atexit
import os
import socket
from typing import TYPE_CHECKING

from lockstep import core

if TYPE_CHECKING:
    from torch.distributed import Store

# What launchers that core.init() understands call a process's rank and how many there are; where they agree with torch, they are asked.
_LAUNCHED = (("LOCKSTEP_STORE", "RANK", "WORLD_SIZE"), ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
             ("PMI_RANK", "PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


def _is_launched(rank: int, size: int) -> bool:
    for present, its_rank, its_size in _LAUNCHED:
        if present in os.environ:
            return (os.environ.get(its_rank), os.environ.get(its_size)) == (str(rank), str(size))
    return False


def _this_host() -> str:
    """The same for processes that can meet in the kernel, and different for others."""
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return f"{boot.read().strip()} {os.stat('/proc/self/ns/net').st_ino} {os.getuid()}"


def _meet_through(store: Store, rank: int, size: int) -> None:
    """Rank 0 says where: on one host a name, else a port of MASTER_ADDR's."""
    for inherited in ("LOCKSTEP_SECRET_FD", "LOCKSTEP_CONTROL_FD"):  # of a launcher, for the process that has started this one
        os.environ.pop(inherited, None)
    place = f"meeting {store.add(f'meetings of {rank}', 1)}"  # all have met as often by this store
    store.set(f"{place}/host/{rank}", _this_host())
    is_one_host = len({store.get(f"{place}/host/{other}") for other in range(size)}) == 1
    address = "127.0.0.1" if is_one_host else os.environ.get("MASTER_ADDR", "")
    if not address:
        raise ValueError("init_process_group(\"lockstep\") between hosts: MASTER_ADDR is where rank 0 can be reached; or start the "
                         "ranks with `lockstep run` or torchrun")
    with socket.socket() as free:
        if rank == 0:
            free.bind(("", 0))
            store.set(f"{place}/port", str(free.getsockname()[1]))
        if not is_one_host:
            free.close()  # rank 0 listens there; on one host it is a name alone, and nobody else has it meanwhile
        core.init_at(rank, size, address, int(store.get(f"{place}/port")))


def join(store: Store, rank: int, size: int, seconds: float | None) -> bool:
    """Afterwards there is a world, of these ranks. Returns whether it was begun here, so that the group's end is its end.

    seconds: how long collectives wait at most, unless LOCKSTEP_TIMEOUT says it; None: as long as usual.
    """
    was_there = core.is_initialized()
    if not was_there:
        if seconds is not None:
            os.environ.setdefault("LOCKSTEP_TIMEOUT", f"{int(seconds * 1000)}ms")
        if _is_launched(rank, size):
            core.init()
        else:
            _meet_through(store, rank, size)
        atexit.unregister(core.shutdown)
        atexit.register(core.shutdown)
    place = core.place(core.WORLD)
    if (place.rank, place.size) != (rank, size):
        if not was_there:
            core.shutdown()
        raise ValueError(f"init_process_group(\"lockstep\"): torch says that this is rank {rank} of {size}, in the job that is there "
                         f"already it is rank {place.rank} of {place.size}")
    return not was_there
