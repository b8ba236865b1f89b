"""Where the ranks of training programs run: all on this machine, a core each, or one on each of several hosts of their own
(benchmarks/hosts), a core each, too."""
import os
import pathlib

import contest
import peers

here = pathlib.Path(__file__).resolve().parent


class ThisMachine:
    link = None

    def __init__(self, build, ranks):
        self.build, self.ranks = build, ranks

    def ours(self, program):
        """`program`, or words to start, under our launcher."""
        # The launcher pins all alike: rank r on the r-th core.
        started = contest.lockstep(self.build, "training_step", self.ranks, [])
        started.command.remove("--no-pin")
        started.command[-1:] = program
        return started

    def horovods(self, words):
        """A program that starts horovodrun (horovod_step.py)."""
        return contest.Contestant("horovod", [], {}, [*words, "--ranks", str(self.ranks)], [])


class Hosts:
    """`link`: benchmarks/hosts' Hosts."""

    def __init__(self, build, link):
        self.build, self.link, self.ranks = build, link, link.count
        self._on_core = [str(here / "on_core"), ",".join(map(str, sorted(os.sched_getaffinity(0))))]
        self._folder = pathlib.Path(link.agent).parent / "bin"
        self._folder.mkdir()
        (self._folder / "ssh").symlink_to(link.agent)  # horovodrun's own word for it

    def ours(self, program):
        return self.link.under_our_launcher(self.build, 1, [*self._on_core, *program], {"GLOO_SOCKET_IFNAME": "cable"})

    def by(self, name, program):
        return self.link.under_mpi(name, peers.home_of(name), 1, [*self._on_core, *program])

    def horovods(self, words):
        list_of_hosts = ",".join(f"{self.link.address(host)}:1" for host in range(self.ranks))
        environment = {"BENCH_HOSTS": list_of_hosts, "BENCH_WRAPPER": " ".join(self._on_core), "BENCH_UNPINNED": "1",
                       "PATH": f"{self._folder}:{os.environ['PATH']}"}
        return contest.Contestant("horovod", self.link.entering(0), environment, [*words, "--ranks", str(self.ranks)], [])
