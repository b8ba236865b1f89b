"""What goes wrong, under the names that programs for Horovod catch."""
from __future__ import annotations

from typing import Any

_CODES = ("", "invalid_argument", "timeout", "peer_lost", "mismatch", "aborted", "unsupported", "corrupt_data", "system", "other")


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank died, did not come in time, or asked for something else. The text names ranks and operations.

    code: "timeout", "peer_lost", "mismatch", "aborted", ... rank: the world rank that caused it, or None.
    """

    code = "other"
    rank: int | None = None


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts came or went: training has to go on with others."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


def error_of(status: int, text: str, rank: int) -> ValueError | HorovodInternalError:
    """The exception for a status of lockstep_c.h: ValueError for what can never work, else HorovodInternalError."""
    code = _CODES[status] if status < len(_CODES) else "other"
    error: Any = (ValueError if code == "invalid_argument" else HorovodInternalError)(text)
    error.code = code
    error.rank = rank if rank >= 0 else None
    return error
