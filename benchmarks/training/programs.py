"""Who takes part in script/bench training: how each program is started, what can be set about it, and which other program
is the same one unconnected."""
import ctypes.util
import dataclasses
import pathlib

import contest
import peers
from hosts import MPIS

here = pathlib.Path(__file__).resolve().parent

# For memory that a step takes to stay mapped until the next one. Else glibc gives back what is large, and each step pays
# for page faults.
KEPT_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}
JEMALLOC = ctypes.util.find_library("jemalloc")
MALLOC = {"malloc": {}, "kept": KEPT_MALLOC, "jemalloc": {"LD_PRELOAD": JEMALLOC}}
MALLOC_NAMES = {"malloc": "malloc", "kept": "malloc, thresholds raised", "jemalloc": "jemalloc"}

# {setting: values to try, the first is the default}. What depends on others comes after them.
MALLOC_KNOB = {"malloc": ["malloc", "kept"] + (["jemalloc"] if JEMALLOC else [])}
FUSED = {"fused": [False, True]}
DDP_KNOBS = {**MALLOC_KNOB, "gradient-as-bucket-view": [False, True], **FUSED, "static-graph": [False, True],
             "bucket-cap-mb": [25, 100]}
ZERO_KNOBS = {**DDP_KNOBS, "parameters-as-bucket-view": [False, True]}
HOROVOD_KNOBS = {**MALLOC_KNOB, "cycle-ms": [1, 0.1, 0.01], "pinned": [True, False]}


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    mode: str  # as the program itself calls it
    package: str | None = None  # the peer whose Python runs it; None: ours
    knobs: dict = dataclasses.field(default_factory=dict)
    averages: bool = True
    alone: str | None = None  # the same program unconnected, with the same allocator and optimizer
    on_gpu: bool = True
    settings: dict = dataclasses.field(default_factory=dict)  # always, and never tried otherwise
    environment: dict = dataclasses.field(default_factory=dict)
    by: str | None = None  # the MPI under whose launcher it runs, with the engine `mpi`

    def missing(self):
        if self.by:
            return peers.home_of(self.by) is None
        return self.package is not None and python_of(self.package) is None


OURS = {program.name: program for program in (
    Program("ddp", "ddp", alone="unconnected_heap"),
    Program("sharded", "sharded", alone="unconnected_tuned", on_gpu=False),
    Program("distributed_optimizer", "distributed_optimizer", alone="unconnected_heap"),
)}
# More of ours, between hosts.
BETWEEN_HOSTS = {program.name: program for program in (
    Program("ddp_bf16", "ddp", alone="unconnected_heap", environment={"LOCKSTEP_WIRE_DTYPE": "bf16"}, on_gpu=False),
    *(Program(f"ddp_by_{name}", "ddp", alone="unconnected_heap", by=name, on_gpu=False) for name in MPIS),
)}
OTHERS = {program.name: program for program in (
    Program("unconnected", "unconnected", averages=False),
    Program("unconnected_kept", "unconnected", averages=False, on_gpu=False, settings={"malloc": "kept"}),
    Program("unconnected_heap", "unconnected_heap", averages=False),
    Program("unconnected_in_step", "unconnected_in_step", averages=False, on_gpu=False),
    Program("unconnected_tuned", "unconnected_tuned", averages=False, on_gpu=False),
    Program("torch_ddp", "ddp", "torch", DDP_KNOBS, alone="torch_unconnected_tuned"),
    Program("torch_zero", "zero", "torch", ZERO_KNOBS, alone="torch_unconnected_tuned", on_gpu=False),
    Program("torch_unconnected", "unconnected", "torch", averages=False),
    Program("torch_unconnected_tuned", "unconnected", "torch", {**MALLOC_KNOB, **FUSED}, averages=False),
    Program("horovod", "horovod", "horovod", HOROVOD_KNOBS, alone="horovod_unconnected_tuned", on_gpu=False),
    Program("horovod_unconnected", "unconnected", "horovod", averages=False, on_gpu=False),
    Program("horovod_unconnected_tuned", "unconnected", "horovod", MALLOC_KNOB, averages=False, on_gpu=False),
)}
ALL = {**OURS, **BETWEEN_HOSTS, **OTHERS}


def python_of(package):
    home = peers.home_of_package(package)
    return home and str(home / "bin" / "python")


def allocator_of(settings, report):
    return "shared heap" if report["shared_heap"] else MALLOC_NAMES[settings.get("malloc", "malloc")]


def contestant(program, place, settings):
    """(what to start, the words about `settings` to start it with)"""
    if program.mode == "horovod":
        started = place.horovods([python_of(program.package), str(here / "horovod_step.py")])
    elif program.package:
        started = place.ours([python_of(program.package), str(here / "peer_step.py")])
    else:
        ours = [str(contest.built(place.build, "training_step"))]
        started = place.by(program.by, ours) if program.by else place.ours(ours)
    started.name = program.name
    started.environment.update(program.environment)
    words = []
    for setting, value in settings.items():
        if setting == "malloc":
            started.environment.update(MALLOC[value])
        elif setting == "cycle-ms":
            started.environment["HOROVOD_CYCLE_TIME"] = str(value)
        elif setting == "pinned":
            started.environment.update({} if value else {"BENCH_UNPINNED": "1"})
        elif value is True:
            words.append(f"--{setting}")
        elif value is not False:
            words += [f"--{setting}", str(value)]
    return started, words
