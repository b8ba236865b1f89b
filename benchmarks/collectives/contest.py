"""Runs measuring programs in turn and keeps what they report."""
import json
import os
import signal
import subprocess
import sys

from peers import Failure

MOST_RANKS = 16  # these three as in collectives/session.h
HEADER_BYTES = 4096
STAMPS_BYTES = MOST_RANKS * 4096 * 16
RANK_VARIABLES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


class Session:
    """The memory of collectives/session.h. It has no name in the file system, so nothing of it can stay behind:
    programs open it through this process."""

    def __init__(self, ranks, buffer_bytes):
        self._fd = os.memfd_create("lockstep-bench")
        page = 4096
        stride = (buffer_bytes + page - 1) // page * page
        os.ftruncate(self._fd, HEADER_BYTES + STAMPS_BYTES + ranks * stride)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"

    def reset(self):
        os.pwrite(self._fd, bytes(HEADER_BYTES), 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)


class Contestant:
    """A measuring program and how to start it."""

    def __init__(self, name, launcher, environment, program, buffers):
        self.name = name
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
        """As run(), with any arguments."""
        process = subprocess.Popen(
            self.command + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env=self.environment,
        )
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as reason:
            stop(process)
            if isinstance(reason, subprocess.TimeoutExpired):
                raise Failure(f"{self.name}: not done after {timeout} s: {' '.join(self.command)}") from None
            raise
        if process.returncode:
            what = f"{self.name}: exit code {process.returncode} of {' '.join(self.command)}"
            raise Failure(f"{what}\n{last_lines(errors or output)}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def stop(process):
    process.terminate()
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def version(build):
    """Of the Lockstep built there."""
    tool = build / "bin/lockstep"
    if not tool.exists():
        raise Failure(f"{tool} is not built; `script/build release` does it")
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def lockstep(build, program, ranks, buffers):
    """One of our own programs under our own launcher."""
    file = build / "bin" / program
    if not file.exists():
        raise Failure(f"{file} is not built; `script/build release` does it")
    # --no-pin: the program pins itself
    launcher = [str(build / "bin/lockstep"), "run", "-np", str(ranks), "--no-pin", "--no-prefix"]
    return Contestant("lockstep", launcher, {}, [str(file)], buffers)


def end_cleanly(main):
    """Runs main() so that what it started ends with it; failures become one line and exit code 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
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
    """{name: [what run() returned, by pair]}. Each pair runs all of them; every second one in reverse, so that who
    comes first has no advantage."""
    results = {contestant.name: [] for contestant in contestants}
    for pair in range(pairs):
        progress(pair)
        for contestant in contestants if pair % 2 == 0 else reversed(contestants):
            results[contestant.name].append(contestant.run(session, work, timeout))
    return results
