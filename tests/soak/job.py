"""A job of the soaks: ranks that loop until one of them is hurt, and what they say about it.

The victim program prints whole lines on stdout (tests/fault/probe_loop.h has the reference):

    soak rank=2 pid=4711 loops
    soak rank=2 code=peer_lost peer=1 began_ns=81234 failed_ns=81934 calls=5120 text=all_reduce #31 (...): ...
    soak rank=2 unharmed

The second when a call failed, with CLOCK_MONOTONIC before the call and after its error; then it ends with an exit code
other than 0. With SOAK_STAYS=1 it first waits for a line on stdin and says whether its memory is as it left it.
SOAK_SEED is to choose what it does.
"""
import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE = 30  # seconds until a job that should do something is given up


class Missed(Exception):
    """Something that a soak requires did not happen."""


def threads_of(pid):
    """Each thread's state, processor time and where it waits in the system: "S 12+3 ticks in futex_do_wait"."""
    found = []
    folder = f"/proc/{pid}/task"
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(f"{folder}/{thread}/wchan") as file:
                found.append(f"{fields[0]} {fields[11]}+{fields[12]} ticks in {file.read()}")
    except OSError:
        return "gone"
    return ", ".join(found)


class Job:
    """Ranks as processes of this one; leaving the `with` block kills what is left."""

    def __init__(self, ranks, mark):
        self.ranks = ranks
        self.mark = mark
        self.pids = {}  # by rank, as they said
        self.reports = {}  # by rank: the fields of the line about the failure
        self.looked = {}  # by rank: "unharmed" or what is wrong
        self.processes = []
        self.shared_memory = set(os.listdir("/dev/shm"))
        self._text = b""
        self._port = None
        self._out, self._in = os.pipe()
        self.errors = tempfile.TemporaryFile("w+")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        for pid in self.left_processes():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        os.close(self._out)
        if self._in is not None:
            os.close(self._in)
        if self._port is not None:
            self._port.close()

    def start(self, words, variables, preexec=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        environment.update(variables, LOCKSTEP_TEST_MARK=self.mark, LOCKSTEP_RECORD_DIR="none")
        # In a session of their own: where the soak is in the background and its shell ends, the kernel lets stopped
        # processes of its group go on.
        self.processes.append(
            subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=self._in, stderr=self.errors,
                             preexec_fn=preexec, start_new_session=True))

    def take_port(self):
        """One that no other job of this host has until this one ends."""
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        return self._port.getsockname()[1]

    def await_all_loop(self):
        self._read_until(lambda: len(self.pids) == self.ranks, "not all ranks began to loop")

    def await_reports(self, ranks):
        self._read_until(lambda: ranks <= self.reports.keys(), "not all of the other ranks noticed")

    def await_a_report(self):
        self._read_until(lambda: self.reports, "nobody noticed")

    def tell_all_to_look(self, ranks):
        for process in self.processes:
            if process.poll() is None:
                process.stdin.write(b"\n")
                process.stdin.flush()
        self._read_until(lambda: ranks <= self.looked.keys(), "not all ranks looked at their memory")

    def finish(self):
        """Exit codes in the order of start(); negative: a signal."""
        os.close(self._in)
        self._in = None
        self._read_until(lambda: self._ended, "processes did not end")
        return [process.wait(timeout=PATIENCE) for process in self.processes]

    def said_on_stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def left_processes(self, *more_variables):
        wanted = {variable.encode() for variable in (f"LOCKSTEP_TEST_MARK={self.mark}", *more_variables)}
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted <= set(file.read().split(b"\0")):
                        found.append(int(entry))
            except OSError:
                pass
        return found

    def pid_of_rank(self, rank):
        """As its environment says: of one that may not have said anything yet. Waits for it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in self.left_processes(f"RANK={rank}"):
                return pid
        raise Missed(f"there is no rank {rank} after {PATIENCE} s")

    def require_nothing_left(self):
        if self.left_processes():
            raise Missed(f"processes left behind: {self.left_processes()}")
        left = set(os.listdir("/dev/shm")) - self.shared_memory
        if left:
            raise Missed(f"left behind in /dev/shm: {sorted(left)}")

    _ended = False

    def _read_until(self, condition, complaint):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            before = time.monotonic()
            ready, _, _ = select.select([self._out], [], [], min(1, max(0, deadline - before)))
            slept = time.monotonic() - before
            if slept > 3:  # the whole machine stood still (a virtual one, while it was moved), the job, too
                print(f"note: nothing ran for {slept:.1f} s", flush=True)
                deadline += slept
            if not ready and time.monotonic() < deadline:
                continue
            data = os.read(self._out, 65536) if ready else b""
            if not data:
                self._ended = True
                if condition():
                    return
                raise Missed(complaint if ready else f"{complaint} within {PATIENCE} s: {self._standing()}")
            self._text += data
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace"))

    def _standing(self):
        """What is known of each rank: what it said last, and what the system says of its threads."""
        return "; ".join(f"rank {rank}: {self.reports.get(rank, {}).get('text', 'no report')}, {threads_of(pid)}"
                         for rank, pid in sorted(self.pids.items()))

    def _take(self, line):
        if not line.startswith("soak rank="):
            return
        fields = dict(word.split("=", 1) for word in line.split(" text=")[0].split() if "=" in word)
        rank = int(fields["rank"])
        if line.endswith(" loops"):
            self.pids[rank] = int(fields["pid"])
        elif " text=" in line:
            self.reports[rank] = dict(fields, text=line.split(" text=", 1)[1])
        else:
            self.looked[rank] = line.split(" ", 2)[2]
