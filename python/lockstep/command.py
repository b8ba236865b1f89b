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


def main() -> None:
    """Prints a folder, or becomes the program that lies beside this package."""
    if sys.argv[1:] == ["--cmake-dir"]:
        print(_here / "lib" / "cmake" / "Lockstep")
        return
    os.execv(PROGRAM, ["lockstep", *sys.argv[1:]])
