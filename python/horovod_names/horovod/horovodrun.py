"""`horovodrun` is `lockstep run`, which understands its options. (A name that lockstep has, too, would be that module.)"""
import os
import sys

from lockstep import command


def main() -> None:
    """Does not return."""
    os.execv(command.PROGRAM, ["lockstep", "run", *sys.argv[1:]])
