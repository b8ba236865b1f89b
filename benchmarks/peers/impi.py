"""Intel MPI, as `script/bootstrap --peers impi` installs it.

I_MPI_FABRICS=shm, what a job of one host is given, and other algorithms than it chooses by itself where those were
clearly faster: all_reduce on 2 ranks with a core each (64 KiB 15 -> 9.5 us, 4 MiB 780 -> 650 us; up to 8 B and up to
16 KiB two algorithms that keep the times of the default, which is slower once any is chosen) and reduce from 16 KiB
on (64 KiB 13 -> 8.5 us, 1 MiB 0.6 or 1.2 ms -> 115 us, on 4 ranks over 2 cores 4 MiB 3.5 -> 1.1 ms).

Tried without gain beyond the spread between runs, 8 B to 25 MiB: all algorithms of all_reduce, broadcast (64 KiB 8.1
instead of 9.7 us, 256 KiB slower), all_gather, all_to_all and reduce_scatter; the fabrics shm:ofi, I_MPI_SHM_CMA 0 and
1, I_MPI_SHM_OPT, I_MPI_SHM_HEAP, I_MPI_SHM icx and clx_avx512, I_MPI_MALLOC 0; with more ranks than cores, where it
yields by itself, I_MPI_THREAD_YIELD 0 and 1 (thousands of times slower), 2 (the same), 3 (up to 30 times slower),
I_MPI_SPIN_COUNT 1 (the same) and 100 (up to 10 times slower), I_MPI_WAIT_MODE. Its own bf16 is a little faster than an
operation of the user's (1 MiB 8%), so that row uses it.
"""
import os
import re
import subprocess

from peers.mpi import program

label = "Intel MPI"
MOST_BYTES = (1 << 31) - 1


def environment_of(home):
    paths = [home / "bin", *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return {
        "I_MPI_ROOT": str(home),
        "LD_LIBRARY_PATH": str(home / "lib"),
        "PATH": os.pathsep.join(map(str, paths)),
    }


def version(home):
    text = subprocess.run([home / "bin/mpiexec.hydra", "--version"], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment_of(home)}).stdout
    return re.search(r"Version ([0-9.]+)", text).group(1)


def build(home, folder):
    return program.build(home / "bin/mpicxx", folder, environment_of(home), ["-DBENCH_BF16=MPIX_BFLOAT16"])


def launcher(home, ranks, cores):
    words = [str(home / "bin/mpiexec.hydra"), "-n", str(ranks)]
    settings = {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "off"}  # the program pins itself
    settings["I_MPI_ADJUST_REDUCE"] = f"10:{16 << 10}-{MOST_BYTES}"
    if ranks == 2 <= len(cores):
        settings["I_MPI_ADJUST_ALLREDUCE"] = f"10:0-8;2:9-{(16 << 10) - 1};14:{16 << 10}-{MOST_BYTES}"
    return words, {**environment_of(home), **settings}


def launcher_on(home, hosts, each):
    words = [str(home / "bin/mpiexec.hydra"), "-bootstrap", "ssh", "-bootstrap-exec", str(hosts.agent), "-iface", "cable", "-hosts",
             ",".join(hosts.address(host) for host in range(hosts.count)), "-ppn", str(each), "-n", str(hosts.count * each)]
    return words, {**environment_of(home), "I_MPI_PIN": "off", "I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp"}
