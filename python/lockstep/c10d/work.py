"""What torch is given for an operation under way: it may wait for it, look, ask for a future, or drop it.

An operation goes on while anybody waits for any operation, in C. What nobody waits for, because it has a future or was dropped, a
thread of ours waits for.
"""
from __future__ import annotations

import atexit
import collections
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch._C._distributed_c10d import Work as _TorchWork

from lockstep.common.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from lockstep import core
    from lockstep.torch.gpu import Place

_SLICE_MS = 100
_IDLE_SECONDS = 1.0
_Base: Any = getattr(torch.distributed, "DistBackendError", RuntimeError)


class LockstepError(_Base):
    """A collective failed: a rank died, did not come in time, or asked for something else. The text names ranks and operations.

    code: "timeout", "peer_lost", "mismatch", "aborted", ... rank: the rank of the job that caused it, or None.
    """

    code = "other"
    rank: int | None = None


def as_torch_has_it(error: Exception) -> Exception:
    """The exception that programs for torch catch."""
    if not isinstance(error, HorovodInternalError):
        return error
    made = LockstepError(str(error))
    made.code, made.rank = error.code, error.rank
    return made


class Pending:
    """Operations of the core that are one for the program.

    works: in the order in which they began. finish(): called once, when all have ended well. result: what the program is given. places:
    GPUs that they are on, at least some: wait() does not wait for those, and let_follow() lets torch's current stream come after them.
    Thread safety: all.
    """

    error: Exception | None
    _works: collections.deque[core.Work | Part] | tuple[()]

    def __init__(self, what: str, works: Iterable[core.Work | Part], finish: Callable[[], None] | None, result: list[torch.Tensor],
                 is_message: bool = False, places: Sequence[Place] = ()) -> None:
        self.what, self.result, self.is_message, self.places = what, result, is_message, places
        self.over, self.error, self.source = False, None, -1
        self._works, self._finish, self._driver = collections.deque(works), finish, threading.Lock()
        self._gives_way = False  # to who abandons it
        self._marks: list[torch.cuda.Event] = []  # on the GPUs, where it ends

    def _drive(self, milliseconds, follows=False):
        """Works on it for so long at most; follows: on GPUs only as far as streams need. REQUIRES: this thread holds _driver."""
        try:
            while self._works:
                work = self._works[0]
                if not (work.follow() if follows and self.places and not isinstance(work, Part) else work.wait_for(milliseconds)):
                    return
                if self.is_message:
                    self.source = self._works[0].source()
                self._works.popleft()
            if self._finish is not None:
                with self.places[0].entered() if self.places else contextlib.nullcontext():
                    self._finish()
            self._marks = [place.mark() for place in self.places]
        except Exception as error:
            self.error = as_torch_has_it(error)
        self.over = True
        self._works, self._finish = (), None

    def look(self) -> bool:
        """Whether it is over, on a GPU, too. Does not wait."""
        if not self.over and self._driver.acquire(blocking=False):
            try:
                if not self.over:
                    self._drive(0)
            finally:
                self._driver.release()
        return self.over and (self.error is not None or all(mark.query() for mark in self._marks))

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over, after so long at most; None: as long as it takes, which the job's own time-out bounds."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self.over:
            left = _SLICE_MS / 1000 if until is None else min(_SLICE_MS / 1000, until - time.monotonic())
            if left < 0:
                return False
            if self._gives_way:
                time.sleep(0.001)
            if self._driver.acquire(timeout=left):
                try:
                    if not self.over:
                        self._drive(int(left * 1000), follows=True)
                finally:
                    self._driver.release()
        return True

    def let_follow(self) -> None:
        """It is over; on a GPU, what torch's current stream gets from now on comes after it."""
        if self.error is None:
            for place in self.places:
                place.let_follow()

    def abandon(self, error: Exception) -> None:
        """Ends it with this error, without waiting, unless it is over: its group fails at once on all ranks, and this one is named."""
        self._gives_way = True
        with self._driver:
            if self.over:
                return
            for work in self._works:
                work.abandon()
            self._works, self._finish, self.error, self.over = (), None, error, True


class _Waiter:
    """Waits for what nobody else does: collectives one after another, as all ranks begin them; messages, which come when they
    like, each in a thread of its own. What is called then comes one after another, too, until it asks for a future, for which it may wait,
    or takes a second: from then on another thread waits. Threads end when there has been nothing left for a second, and before the
    interpreter does."""

    def __init__(self):
        self._process, self._changed, self._left, self._threads = os.getpid(), threading.Condition(), collections.deque(), []
        self._waits, self._idle, self._ending = False, 0, False  # for a collective; threads that could
        self._caller, self._called_at = None, 0.0  # who waits for none at the moment, because it calls then()
        atexit.register(self._end)

    def take(self, pending: Pending, then: Callable[[], None] | None = None) -> None:
        """then(): called when it is over."""
        if os.getpid() != self._process or self._ending:  # a forked child has no part in it
            return
        with self._changed:
            if pending.is_message:
                self._start(self._finish, pending, then)
                return
            self._left.append((pending, then))
            if self._caller == threading.get_ident():  # it may wait for this one
                self._hand_over()
            self._wake()

    def _hand_over(self):
        self._waits, self._caller = False, None

    def _wake(self):
        """Somebody is to wait for the next one, unless somebody waits for another. REQUIRES: _changed."""
        if self._ending or self._waits or not self._left:
            return
        if self._idle > 0:
            self._changed.notify()
        else:
            self._start(self._run)

    def _start(self, *call):
        thread = threading.Thread(target=call[0], args=call[1:], name="lockstep", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _await(self, pending):
        """Whether it is over; else the interpreter ends."""
        while not pending.wait(_SLICE_MS / 1000):
            if self._ending:
                return False
        return True

    def _finish(self, pending, then):
        if self._await(pending) and then is not None:
            then()

    def _next(self):
        """What this thread is to wait for; None where it is not needed. REQUIRES: _changed."""
        is_new = True
        while not self._ending:
            if self._caller is not None and time.monotonic() - self._called_at >= _IDLE_SECONDS:
                self._hand_over()
            if self._left and not self._waits:
                self._waits = True
                return self._left.popleft()
            if not is_new and self._caller is None:
                return None
            self._idle += 1
            is_new = self._changed.wait(_IDLE_SECONDS)
            self._idle -= 1
        return None

    def _run(self):
        while True:
            with self._changed:
                mine = self._next()
            if mine is None:
                return
            pending, then = mine
            if self._await(pending) and then is not None:
                with self._changed:
                    self._caller, self._called_at = threading.get_ident(), time.monotonic()
                    if self._left and self._idle == 0:
                        self._start(self._run)
                then()
            with self._changed:
                if then is None or self._caller == threading.get_ident():
                    self._hand_over()
                self._wake()

    def _end(self):
        """No thread may be in torch's code when the interpreter ends."""
        if os.getpid() == self._process:
            self._ending = True
            with self._changed:
                self._changed.notify_all()
            for thread in self._threads:
                thread.join(1)


_waiter = _Waiter()


# Older versions of torch keep the C++ half of a Work that they were given, and drop Python's, without which it is never over.
_forgets_python = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 8)
_unasked: collections.OrderedDict[int, Work] = collections.OrderedDict()
_MOST_UNASKED = 4096


class Work(_TorchWork):
    """As torch.distributed's Work."""

    _future: torch.futures.Future[list[torch.Tensor]] | None
    _process: int | None  # that waits for it; None: none does

    def __init__(self, pending: Pending, seconds: float | None) -> None:
        super().__init__()
        self._pending, self._seconds, self._future, self._process = pending, seconds, None, os.getpid()
        if _forgets_python:
            _unasked[id(self)] = self
            if len(_unasked) > _MOST_UNASKED:
                _unasked.popitem(last=False)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns True when it is over. Raises LockstepError, also after timeout (a timedelta), or that of the group."""
        _unasked.pop(id(self), None)
        asked = timeout.total_seconds() if timeout else 0
        seconds = asked if asked > 0 else self._seconds
        if not self._pending.wait(seconds):
            error = LockstepError(f"{self._pending.what}: timeout after {seconds:g} s; its group is closed")
            error.code = "timeout"
            self._pending.abandon(error)
        if self._pending.error is not None:
            raise self._pending.error
        self._pending.let_follow()
        return True

    def given_away(self) -> Pending:
        """What it stands for, which somebody else waits for from now on."""
        _unasked.pop(id(self), None)
        self._process = None
        return self._pending

    def is_completed(self) -> bool:
        """Whether it is over. Does not wait."""
        return self._pending.look()

    def is_success(self) -> bool:
        """Whether it is over, and ended well. Does not wait."""
        return self._pending.look() and self._pending.error is None

    def exception(self) -> Exception | None:
        """What it failed of; None where it did not, or is not over."""
        return self._pending.error

    def result(self) -> list[torch.Tensor]:
        """The tensors that it has written."""
        return list(self._pending.result)

    def source_rank(self) -> int:
        """Of a receive that is over: the rank in its group that has sent it; else -1."""
        return self._pending.source

    _source_rank = source_rank

    def synchronize(self) -> None:
        """As wait(), with the group's timeout."""
        self.wait()

    def block_current_stream(self) -> None:
        """As synchronize()."""
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A torch.futures.Future of result(); its error is a RuntimeError with the text of ours. Its callbacks run in a thread of
        ours; those of a call on a GPU at once, in streams of torch's that come after it."""
        _unasked.pop(id(self), None)
        if self._future is None:
            pending = self._pending
            over = torch.futures.Future(devices=list({place.device for place in pending.places}) or None)

            def told(_: torch.futures.Future[None]) -> list[torch.Tensor]:
                if pending.error is not None:
                    raise pending.error
                pending.let_follow()  # a stream of torch's own, which those of who waits for the future come after
                return list(pending.result)

            # Not set_exception(): that is a value, which C++ takes for tensors.
            self._future = over.then(told)
            if pending.places:
                pending.wait()
            if pending.over:
                over.set_result(None)
            else:
                _waiter.take(pending, lambda: over.set_result(None))
        return self._future

    def __del__(self):
        pending = getattr(self, "_pending", None)
        if pending is not None and not pending.over and self._future is None and self._process == os.getpid():
            _waiter.take(pending)


class Part:
    """A Work of ours as a work of the core, for those that are made of several, which look after it from now on."""

    def __init__(self, work: Work) -> None:
        self._pending = work.given_away()

    def wait_for(self, milliseconds: int) -> bool:
        """Whether it is over, after so long at most. Raises what it failed of."""
        if not (self._pending.wait(milliseconds / 1000) if milliseconds else self._pending.look()):
            return False
        if self._pending.error is not None:
            raise self._pending.error
        return True

    @property
    def places(self) -> Sequence[Place]:
        """GPUs that it is on."""
        return self._pending.places

    def source(self) -> int:
        """As Work.source_rank()."""
        return self._pending.source

    def abandon(self) -> None:
        """Ends it without waiting."""
        self._pending.abandon(LockstepError("given up"))
