"""Training that goes on after a collective has failed: state that can be committed and restored, and run(), which begins again in
the job's next world. The job's size stays what it is: ranks that die end it (`lockstep run --max-restarts` starts it again)."""
import copy
import functools

from lockstep.common import basics
from lockstep.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class State:
    """What training has come to. A derived class says how to save, restore and synchronize it."""

    def __init__(self, bcast_object, get_rank):
        self._broadcast_object, self._rank = bcast_object, get_rank
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Functions that are called after each reset, as when a learning rate follows the number of ranks."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """Hosts do not come and go in a job of fixed size."""

    def commit(self):
        """From here restore() goes on."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Hosts do not come and go in a job of fixed size."""

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        """All ranks go on with rank 0's state."""
        raise NotImplementedError

    def reset(self):
        """After a reset, before sync()."""


class ObjectState(State):
    """Of values that can be copied, each an attribute."""

    def __init__(self, bcast_object, get_rank, **values):
        self._saved = values
        super().__init__(bcast_object, get_rank)
        self._set(values)

    def _set(self, values):
        for name, value in values.items():
            setattr(self, name, value)

    def save(self):
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self):
        self._set(copy.deepcopy(self._saved))

    def sync(self):
        if self._saved:
            self._saved = self._broadcast_object({name: getattr(self, name) for name in self._saved})
            self._set(copy.deepcopy(self._saved))


def run_fn(function, reset):
    """`function(state, ...)` until it returns; after a collective has failed, from the last commit on, in a world of its own."""

    @functools.wraps(function)
    def wrapper(state, *arguments, **named):
        is_again, skips_sync = False, False
        while True:
            if is_again:
                reset()
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


def reset():
    """Into the job's next world."""
    basics.shutdown()
    basics.init()
