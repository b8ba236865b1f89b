"""The command `lockstep` of the wheel: the launcher and the tools, which lie in this package; `lockstep --cmake-dir` says where
CMake finds the core for C++ programs."""
import os
import pathlib
import sys

_here = pathlib.Path(__file__).resolve().parent
PROGRAM = _here / "bin" / "lockstep"


def main():
    if sys.argv[1:] == ["--cmake-dir"]:
        print(_here / "lib" / "cmake" / "Lockstep")
        return
    os.execv(PROGRAM, ["lockstep", *sys.argv[1:]])
