"""Gloo as torch.distributed uses it from Python, of the torch that `script/bootstrap --peers torch` installs.

The ranks are Python processes, as its users have them; one call from Python costs some 10 us of the 100 us and more
that Gloo takes. Sockets of the loopback interface, because Gloo would otherwise take the interface that the host's
name leads to; one OpenMP thread, because each rank has one core. Everything else is the default: eth0 instead of lo,
two sockets (lo,lo), 1 and 4 threads of Gloo's instead of 2 made no difference beyond the spread between runs, on 2
ranks or on 4 over 2 cores, 16 B to 25 MiB. Gloo has no shared memory.
"""
import pathlib
import re

from peers import compiled

label = "Gloo of torch"
package = "torch"
folder = pathlib.Path(__file__).resolve().parent / "process_group"


def version(home):
    found = sorted(home.glob("lib/python3*/site-packages/torch/version.py"))
    if not found:
        raise OSError("there is no torch in it")
    return re.search(r"__version__ = '([^'+]+)", found[0].read_text()).group(1)  # importing torch takes seconds


def build(home, target_folder):
    return [str(compiled(["c++", "-shared", "-fPIC"], folder / "measure.cpp", target_folder / "measure.so"))]


def launcher(home, ranks, cores):
    words = [str(home / "bin/python"), str(folder / "collectives.py")]
    return words, {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def launcher_on(home, hosts, each):
    """The processes are forked on the first host; each then enters its own."""
    words = [str(home / "bin/python"), str(folder / "collectives.py")]
    networks = ",".join(hosts.network(host) for host in range(hosts.count) for _ in range(each))
    return words, {"GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1", "BENCH_NETWORKS": networks,
                   "BENCH_ADDRESS": hosts.address(0)}
