"""`horovod.runner.run()`: a function on several ranks, and what each returned.

    from lockstep.runner import run

    def train(epochs):
        import lockstep.torch as hvd
        hvd.init()
        return hvd.rank()

    assert run(train, args=(3,), num_proc=2) == [0, 1]
"""
from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from typing import TYPE_CHECKING

from lockstep import command

try:  # takes functions and classes of the main program, too
    import cloudpickle
except ImportError:
    cloudpickle = pickle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any


def _options(num_proc: int, **given: Any) -> list[str]:
    """Of `lockstep run`."""
    words = ["-np", str(num_proc)]
    for option in ("min_num_proc", "max_num_proc", "hosts", "hostfile", "start_timeout", "output_filename", "reset_limit", "ssh_port",
                   "ssh_identity_file", "host_discovery_script"):
        if given[option] is not None:
            words += [{"min_num_proc": "--min-np", "max_num_proc": "--max-np", "hosts": "-H", "reset_limit": "--max-restarts"}.get(
                option, "--" + option.replace("_", "-")), str(given[option])]
    return words


def run(func: Callable[..., Any], args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, num_proc: int = 1,
        min_num_proc: int | None = None, max_num_proc: int | None = None, slots: int | None = None, reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None, hosts: str | None = None, hostfile: str | os.PathLike[str] | None = None,
        host_discovery_script: str | os.PathLike[str] | None = None, start_timeout: float | None = None, ssh_port: int | None = None,
        ssh_identity_file: str | os.PathLike[str] | None = None,
        disable_cache: bool | None = None, output_filename: str | os.PathLike[str] | None = None, verbose: int | None = None,
        use_gloo: bool | None = None, use_mpi: bool | None = None, mpi_args: str | None = None,
        network_interface: str | None = None, network_interfaces: str | None = None, executable: str | None = None,
        np: int | None = None, min_np: int | None = None,
        max_np: int | None = None) -> list[Any]:
    """Calls func(*args, **kwargs) on num_proc ranks, and returns their results, in the order of ranks.

    The function and its results are pickled (by cloudpickle, where it is installed). With hosts, or a hostfile, it and they lie in a
    folder that all of them share: TMPDIR. What says how Horovod starts (disable_cache, mpi_args, slots, use_gloo, use_mpi, cooldown_range) has
    no meaning here. executable: the Python to run [this one]. Raises RuntimeError where a rank has failed.
    """
    for new, old in (("num_proc", np), ("min_num_proc", min_np), ("max_num_proc", max_np)):
        if old is not None:
            warnings.warn(f"{new.replace('num_proc', 'np')} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
    if network_interface is not None:
        warnings.warn("network_interface is deprecated, use network_interfaces instead", DeprecationWarning, stacklevel=2)
    num_proc = np if np is not None and num_proc == 1 else num_proc
    min_num_proc, max_num_proc = min_num_proc if min_num_proc is not None else min_np, max_num_proc if max_num_proc is not None else max_np
    if hosts is not None and hostfile is not None:
        raise ValueError("run(): hosts and hostfile say the same; give one of them")
    if use_gloo and use_mpi:
        raise ValueError("run(): use_gloo and use_mpi are both True; neither is needed")
    options = _options(num_proc, min_num_proc=min_num_proc, max_num_proc=max_num_proc, hosts=hosts, hostfile=hostfile,
                       start_timeout=start_timeout, output_filename=output_filename, reset_limit=reset_limit, ssh_port=ssh_port,
                       ssh_identity_file=ssh_identity_file, host_discovery_script=host_discovery_script)
    interfaces = network_interfaces or network_interface
    chosen = {"LOCKSTEP_IFACE": interfaces} if interfaces else {}
    options += [word for name in ("PYTHONPATH", *chosen) for word in ("-x", name)]
    with tempfile.TemporaryDirectory(prefix="lockstep-run-") as folder:
        place = pathlib.Path(folder)
        (place / "call").write_bytes(cloudpickle.dumps((func, tuple(args), kwargs or {})))
        # A function of the main program's own module is pickled by its name alone, where there is no cloudpickle.
        own = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))  # of this Python alone
        paths = [path for path in sys.path if path and not path.startswith(own) or "site-packages" in path] + [os.getcwd()]
        ended = subprocess.run([command.PROGRAM, "run", *options, executable or sys.executable, "-m",
                                "lockstep.runner.call", folder], env={**os.environ, **chosen, "PYTHONPATH": os.pathsep.join(paths)})
        results = sorted(place.glob("result.*"), key=lambda file: int(file.suffix[1:]))
        missing = [rank for rank in range(num_proc) if not (place / f"result.{rank}").exists()]
        if ended.returncode or (missing and min_num_proc is None):
            raise RuntimeError(f"run(): the job ended with {ended.returncode}" +
                               (f", and without a result of rank {', '.join(map(str, missing))}" if missing else ""))
        return [pickle.loads(file.read_bytes()) for file in results]
