"""Training that goes on after a collective has failed: state that can be committed and restored, and run(), which begins again in
the job's next world. Under `lockstep run` with --min-np, --restart or --tolerate that world is made of the ranks that live: without
those that died, and with those that were started again, who get the first rank's state."""
from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

from lockstep import core
from lockstep.common import basics
from lockstep.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    _Result = TypeVar("_Result")


class State:
    """What training has come to. A derived class says how to save, restore and synchronize it."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._broadcast_object, self._rank = bcast_object, get_rank
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Functions that are called after each reset, as when a learning rate follows the number of ranks."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """reset(), and then what was registered."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Horovod tells a state so; here commit() asks."""

    def commit(self) -> None:
        """From here restore() goes on."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks where some have come or gone, as the first rank sees it. Collective."""
        if core.ranks_may_change() and self._broadcast_object(core.world_has_changed()):
            raise HostsUpdatedInterrupt()

    def save(self) -> None:
        """Keeps the state in this process, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """The state as it was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """All ranks go on with rank 0's state."""
        raise NotImplementedError

    def reset(self) -> None:
        """After a reset, before sync()."""


class ObjectState(State):
    """Of values that can be copied, each an attribute."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **values: Any) -> None:
        self._saved = values
        super().__init__(bcast_object, get_rank)
        self._set(values)

    def _set(self, values):
        for name, value in values.items():
            setattr(self, name, value)

    def save(self) -> None:
        """Keeps copies of the values."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """The values as they were saved last."""
        self._set(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """All ranks take rank 0's values, and save them."""
        if self._saved:
            self._saved = self._broadcast_object({name: getattr(self, name) for name in self._saved})
            self._set(copy.deepcopy(self._saved))


def run_fn(function: Callable[..., _Result], reset: Callable[[], object]) -> Callable[..., _Result]:
    """`function(state, ...)` until it returns; after a collective has failed, from the last commit on, in a world of its own."""

    @functools.wraps(function)
    def wrapper(state, *arguments, **named):
        is_again, skips_sync = False, False
        while True:
            if is_again:
                _reset_until_all_are_there(reset)
                state.on_reset()
            try:
                if not skips_sync:
                    state.sync()
                return function(state, *arguments, **named)
            except HorovodInternalError:
                state.restore()
                skips_sync = False
            except HostsUpdatedInterrupt as update:
                skips_sync = update.skip_sync
            is_again = True

    return wrapper


def _reset_until_all_are_there(reset):
    """A rank may die while the next world is made, which is then made without it."""
    while True:
        try:
            return reset()
        except HorovodInternalError as error:
            if not core.ranks_may_change() or error.code != "peer_lost":
                raise


def reset() -> None:
    """Into the job's next world."""
    basics.shutdown()
    basics.init()
