"""`horovodrun` is `lockstep run`, which understands its options. (A name that lockstep has, too, would be that module.)"""
import sys

from lockstep import command


def main() -> None:
    """Does not return."""
    command.become("run", *sys.argv[1:])
