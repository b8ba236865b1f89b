"""MPICH, as `script/bootstrap --peers mpich` installs it (device ch4, shared memory inside a host).

With a core for each rank its collectives through shared memory ("release_gather") are the fastest for small buffers,
but for larger ones they need larger cells than their defaults (4 cells in 32 KiB), and all_reduce needs the algorithm
between pairs of ranks (single copy by cma) above 128 KiB; mpi/mpich_selection.json says so, other operations are left
as they are. On 2 ranks: reduce of 1 MiB 780 -> 180 us, broadcast of 1 MiB 127 -> 70 us, all_reduce of 64 KiB
43 -> 15 us, of 1 MiB 700 -> 170 us, of 25 MiB 16 -> 5 ms.

With more ranks than cores those collectives must be off: they spin without giving the core away, so that an all_reduce
of 1 MiB on 4 ranks over 2 cores takes 1.3 s instead of 0.6 ms, and a whole run does not finish.

Tried without gain beyond the spread between runs: the ucx and the ofi network module, no cma, other thresholds for it,
ipc_read for broadcast, all_gather and all_to_all, all_reduce by recursive doubling, ring, recexch and
k_reduce_scatter_allgather, reduce by binomial; cells of 32 KiB to 2 MiB; with more ranks than cores
CH4_PROGRESS_THROTTLE, POLLS_BEFORE_YIELD and ENABLE_HEAVY_YIELD (30 times slower when the machine is quiet).
MPICH's own bf16 is 2 to 3 times slower than an operation of the user's.
"""
import re
import subprocess

from peers.mpi import program

label = "MPICH"


def version(home):
    text = subprocess.run([home / "bin/mpichversion"], capture_output=True, text=True, check=True).stdout
    return re.search(r"Version:\s*(\S+)", text).group(1)


def build(home, folder):
    return program.build(home / "bin/mpicxx", folder)


def launcher(home, ranks, cores):
    words = [str(home / "bin/mpiexec"), "-n", str(ranks), "-bind-to", "none"]  # the program pins itself
    if ranks > len(cores):
        return words, {"MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
    settings = {"CH4_COLL_SELECTION_TUNING_JSON_FILE": str(program.folder / "mpich_selection.json")}
    for operation in ("REDUCE", "BCAST"):  # all_reduce uses both
        settings[f"{operation}_INTRANODE_BUFFER_TOTAL_SIZE"] = str(512 << 10)
        settings[f"{operation}_INTRANODE_NUM_CELLS"] = "4"
    return words, {f"MPIR_CVAR_{name}": value for name, value in settings.items()}


def launcher_on(home, hosts, each):
    """By hydra's ssh. Its wheel has the device ucx alone, which is told to use TCP on the cable."""
    words = [str(home / "bin/mpiexec"), "-launcher", "ssh", "-launcher-exec", str(hosts.agent), "-iface", "cable", "-hosts",
             ",".join(f"{hosts.address(host)}:{each}" for host in range(hosts.count)), "-n", str(hosts.count * each), "-bind-to",
             "none"]
    return words, {"UCX_TLS": "tcp,self" if each == 1 else "tcp,self,sysv,posix,cma", "UCX_NET_DEVICES": "cable"}
