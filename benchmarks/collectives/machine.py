"""What a figure was measured on, and whether something else ran there."""
import ctypes
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import time

ticks = os.sysconf("SC_CLK_TCK")


def describe(cores):
    model = platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": len(cores),
        "core_numbers": cores,
        "memory_bytes": memory,
        "compiler": compiler(),
        "system": f"{platform.system()} {platform.release()}",
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "huge_pages": {name: _chosen(f"/sys/kernel/mm/transparent_hugepage/{file}")
                       for name, file in (("private", "enabled"), ("shared", "shmem_enabled"))},
        "process_vm_readv": may_read_others(),
    }


def _chosen(file):
    """Of a line such as "always [madvise] never", the word in brackets."""
    try:
        return re.search(r"\[(\S+)\]", pathlib.Path(file).read_text()).group(1)
    except (OSError, AttributeError):
        return "unknown"


class _Part(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _read_other(pid, address, length):
    target = ctypes.create_string_buffer(length)
    mine, theirs = _Part(ctypes.addressof(target), length), _Part(address, length)
    read = ctypes.CDLL(None).process_vm_readv
    read.restype = ctypes.c_ssize_t
    return target.raw if read(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) == length else None


def may_read_others():
    """Whether a process may read its sibling's memory by process_vm_readv (CMA), which MPIs copy large buffers with."""
    secret = ctypes.create_string_buffer(b"memory of the sibling")
    sibling = os.fork()
    if sibling == 0:
        while True:
            signal.pause()
    reader = os.fork()
    if reader == 0:
        os._exit(0 if _read_other(sibling, ctypes.addressof(secret), len(secret)) == secret.raw else 1)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
    finally:
        os.kill(sibling, signal.SIGKILL)
        os.waitpid(sibling, 0)


def compiler():
    """With which Lockstep and the peers' programs are built here."""
    try:
        return subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "no compiler"


def _processes():
    """{pid: (name, seconds of processor time)} of all that we may see."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        found[int(entry)] = (name, (int(fields[11]) + int(fields[12])) / ticks)
    return found


def busy_processes(seconds=1.0, threshold=0.1):
    """[(name, share of one core)] of others that use more than `threshold` now, the busiest first."""
    before, begin = _processes(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = _processes(), time.monotonic() - begin
    shares = [
        (name, (used - before.get(pid, (name, 0.0))[1]) / elapsed)
        for pid, (name, used) in after.items()
        if pid != os.getpid()
    ]
    return sorted((item for item in shares if item[1] > threshold), key=lambda item: -item[1])


def warn_if_busy(say):
    """Tells `say` who uses the cores now; returns busy_processes()."""
    busy = busy_processes()
    for name, share in busy[:5]:
        say(f"warning: the machine is busy: {name} uses {share:.0%} of a core; figures will be off")
    return busy


class ForeignLoad:
    """How much of the cores something else used between begin and end: other processes, and other guests of a
    virtual machine's host (steal)."""

    def __init__(self):
        self._begin = self._look()

    @staticmethod
    def _look():
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        user, nice, system, _, _, irq, softirq, steal = fields[:8]
        ours = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return (user + nice + system + irq + softirq + steal) / ticks, ours, time.monotonic()

    def share(self):
        """In cores."""
        busy, ours, now = self._look()
        return max(0.0, (busy - self._begin[0]) - (ours - self._begin[1])) / (now - self._begin[2])
