"""Open MPI, as `script/bootstrap --peers openmpi` installs it.

It runs with its defaults (pml ob1, btl sm with cma's single copy, coll han and tuned), because nothing else was better
for all_reduce on 2 ranks or on 4 over 2 cores, 4 B to 64 MiB, beyond the spread between runs. Tried: pml ucx and cm
(they refuse to work inside one host without a network), coll ^han, basic alone, coll sm and adapt first (sm: up to 100
times slower), coll_tuned_allreduce_algorithm 3 (recursive doubling), 4 (ring), 5 (ring in segments of 1 MiB) and 6
(Rabenseifner), smsc ^cma (8 KiB 1.6 times faster, from 64 KiB on slower, 64 MiB 2.5 times), mpi_yield_when_idle with
more ranks than cores (what :OVERSUBSCRIBE sets anyway). For the other operations, 2 ranks, 64 KiB to 25 MiB: coll ^han,
coll sm first (broadcast, reduce and all_gather slower), smsc ^cma, and for reduce_scatter, where Open MPI is far behind
the others, coll_tuned_reduce_scatter_block_algorithm 1 (linear), 2 (recursive doubling), 3 (recursive halving), 4
(butterfly).
"""
import os
import re
import subprocess

from peers.mpi import program

label = "Open MPI"


def version(home):
    text = subprocess.run([home / "bin/mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"[0-9]+(\.[0-9]+)+\S*", text).group(0)


def build(home, folder):
    return program.build(home / "bin/mpicxx", folder)


def launcher(home, ranks, cores):
    words = [str(home / "bin/mpirun"), "-np", str(ranks), "--bind-to", "none"]  # the program pins itself
    if ranks > len(cores):
        words += ["--map-by", ":OVERSUBSCRIBE"]  # also makes Open MPI's waits yield
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    return words, {}


def launcher_on(home, hosts, each):
    words = [str(home / "bin/mpirun"), "-np", str(hosts.count * each), "--bind-to", "none", "--host",
             ",".join(f"{hosts.address(host)}:{each}" for host in range(hosts.count)), "--prefix", str(home),
             "--prtemca", "plm_ssh_agent", str(hosts.agent), "--mca", "btl", "self,sm,tcp", "--mca", "pml", "ob1",
             "--mca", "btl_tcp_if_include", "cable"]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    return words, {"UCX_TLS": "tcp,self"}
