"""Runs measuring programs in turn and keeps what they report."""
import ctypes
import json
import os
import signal
import subprocess
import sys

from peers import Failure

MOST_RANKS = 16  # these three as in collectives/session.h
HEADER_BYTES = 4096
BUFFERS_BEGIN = 2 << 20
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
kept = set()  # children that are to stay when a program has ended
RANK_VARIABLES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


class Unfinished(Failure):
    """A program did not come to its end. `reports`: what it had reported before; `hung`: it was cut off."""

    def __init__(self, text, reports, hung):
        super().__init__(text)
        self.reports = reports
        self.hung = hung


class Session:
    """The memory of collectives/session.h. It has no name in the file system, so nothing of it can stay behind:
    programs open it through this process. There are two shared buffers for each rank."""

    def __init__(self, ranks, buffer_bytes):
        self._fd = os.memfd_create("lockstep-bench")
        page = 4096
        stride = (buffer_bytes + page - 1) // page * page
        os.ftruncate(self._fd, BUFFERS_BEGIN + ranks * 2 * stride)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"

    def reset(self):
        os.pwrite(self._fd, bytes(HEADER_BYTES), 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)


class Contestant:
    """A measuring program and how to start it. `may_fail`: what it does not finish is missing, and that is all."""

    def __init__(self, name, launcher, environment, program, buffers, may_fail=False):
        self.name = name
        self.may_fail = may_fail
        self.command = [*launcher, *program]
        self.environment = {key: value for key, value in os.environ.items() if key not in RANK_VARIABLES}
        self.environment.update(environment)
        self.buffers = buffers

    def run(self, session, work, timeout):
        """The reports that it prints, one a line; `work` holds the flags of collectives/options.h."""
        session.reset()
        flags = {**work, "session": session.path, "buffers": ",".join(self.buffers)}
        return self.run_with([word for key, value in flags.items() for word in (f"--{key}", str(value))], timeout)

    def run_with(self, words, timeout):
        """As run(), with any arguments. Ends all other children of this process."""
        adopt_strays()
        process = subprocess.Popen(
            self.command + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env=self.environment,
        )
        hung = False
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            hung = True
            output, errors = stop(process)
        except BaseException:
            stop(process)
            raise
        finally:
            end_strays()
        reports = [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
        command = " ".join(self.command)
        if hung:
            raise Unfinished(f"{self.name}: not done after {timeout} s: {command}", reports, hung)
        if process.returncode:
            what = f"{self.name}: exit code {process.returncode} of {command}"
            raise Unfinished(f"{what}\n{last_lines(errors or output)}", reports, hung)
        return reports


def stop(process):
    """(what it wrote to its output, to its errors)"""
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    end_strays()  # they may hold the other ends of its pipes
    return process.communicate()


def adopt_strays():
    """From now on what a launcher leaves behind when it dies becomes our child, and end_strays() finds it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_strays():
    """Kills all that our programs left running: ranks that nobody waits for would disturb all further figures."""
    while strays := [child for child in children() if child not in kept]:
        for child in strays:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def children():
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = file.read().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue  # it ended meanwhile
        if int(parent) == os.getpid():
            found.append(int(entry))
    return found


def version(build):
    """Of the Lockstep built there."""
    return said(built(build, "lockstep"), "--version").strip()


def built(build, program):
    file = build / "bin" / program
    if not file.exists():
        raise Failure(f"{file} is not built; `script/build release` does it")
    return file


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def lockstep_operations(build):
    """The names of what Lockstep can do."""
    return said(built(build, "lockstep_collectives"), "--list").split()


def lockstep(build, program, ranks, buffers):
    """One of our own programs under our own launcher."""
    file = built(build, program)
    # --no-pin: the program pins itself
    launcher = [str(build / "bin/lockstep"), "run", "-np", str(ranks), "--no-pin", "--no-prefix"]
    return Contestant("lockstep", launcher, {}, [str(file)], buffers)


def end_cleanly(main):
    """Runs main() so that what it started ends with it; failures become one line and exit code 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except Failure as failure:
        say(str(failure))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def say(text):
    print(f"bench: {text}", file=sys.stderr)


def last_lines(text, count=12):
    return "\n".join("  " + line for line in text.strip().splitlines()[-count:])


def in_pairs(contestants, pairs, session, work, timeout, progress):
    """({name: [what run() returned, by pair]}, {name: the first Unfinished}). Each pair runs all of them; every second
    one in reverse, so that who comes first has no advantage. Who does not finish is not asked again for the case that
    it stopped at, nor for those after it: a program that hangs would hang in each pair."""
    results = {contestant.name: [] for contestant in contestants}
    unfinished = {}
    cases = {}  # name: how many it can finish, where that is not all
    for pair in range(pairs):
        progress(pair)
        for contestant in contestants if pair % 2 == 0 else reversed(contestants):
            name = contestant.name
            limited = {**work, "cases": cases[name]} if name in cases else work
            try:
                reports = contestant.run(session, limited, timeout) if cases.get(name) != 0 else []
            except Unfinished as failure:
                if not contestant.may_fail:
                    raise
                say(str(failure))
                unfinished.setdefault(name, failure)
                reports = failure.reports
                cases[name] = len(reports)
            results[name].append(reports)
    return results, unfinished
