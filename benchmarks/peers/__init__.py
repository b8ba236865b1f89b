"""What Lockstep is measured against: one module per peer, found by its file name, which is also the name that
script/bootstrap --peers knows. A peer has

    label                            what people call it
    version(home)                    of what is installed in the folder `home`; raises OSError if that is broken
    build(home, folder)              compiles its measuring program into `folder` where that is not up to date, and
                                     returns what to start on each rank: a list of words. Raises Failure
    launcher(home, ranks, cores)     (words before the program, environment variables) to start it on `ranks` ranks
    supports(op, dtype)              whether the program can do that

Its program takes the flags of collectives/options.h and prints the lines of collectives/measure.h.
"""
import importlib
import os
import pathlib

folder = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """What went wrong and what to do, for people."""


def known():
    return sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")


def home_of(name):
    """Where script/bootstrap --peers puts it; None if it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    deps = os.environ.get("LOCKSTEP_DEPS") or os.path.join(cache, "lockstep")
    home = pathlib.Path(deps) / "peers" / name
    return home if home.is_dir() else None


def load(name):
    return importlib.import_module(f"peers.{name}")
