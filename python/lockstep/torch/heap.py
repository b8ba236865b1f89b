"""What the C library does with memory that torch gives back to it."""
from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_KEPT = 32 << 20  # the most that glibc takes


def keep_freed_memory() -> None:
    """Gradients and activations come and go in each step. Memory of theirs that glibc gives back to the system is cleared and mapped anew,
    page by page, a moment later: up to a fifth of a step. From now on it keeps what is freed, of blocks of up to 32 MiB.

    Nothing happens where the environment says how malloc works (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_, or glibc.malloc in
    GLIBC_TUNABLES), and where malloc is another one.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None and tell(_MMAP_THRESHOLD, _LARGEST_KEPT):
        tell(_TRIM_THRESHOLD, -1)
