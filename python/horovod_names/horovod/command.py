"""`horovodrun` is `lockstep run`, which understands its options."""
import os
import sys

from lockstep import command


def main() -> None:
    """Does not return."""
    os.execv(command.PROGRAM, ["lockstep", "run", *sys.argv[1:]])
