"""The command `lockstep` of the wheel: the launcher and the tools, which lie in this package; `lockstep --cmake-dir` says where
CMake finds the core for C++ programs."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys

_here = pathlib.Path(__file__).resolve().parent
PROGRAM = _here / "bin" / "lockstep"
if not PROGRAM.exists():  # not in a wheel: the one that PATH finds
    PROGRAM = pathlib.Path(shutil.which("lockstep") or PROGRAM)


def become(*words: str) -> None:
    """This process is that program from now on, with these words. Exits with 1 where there is none."""
    try:
        os.execv(PROGRAM, ["lockstep", *words])
    except OSError as error:
        sys.exit(f"lockstep: cannot start {PROGRAM}: {error.strerror}; install the package again (pip install --force-reinstall lockstep), "
                 "or put a launcher's folder into PATH")


def main() -> None:
    """Prints a folder, or becomes the program that lies beside this package."""
    if sys.argv[1:] == ["--cmake-dir"]:
        print(_here / "lib" / "cmake" / "Lockstep")
        return
    become(*sys.argv[1:])
