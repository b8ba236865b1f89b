"""Threads that do not keep a program from ending, and functions that several of them call."""
from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    _Result = TypeVar("_Result")


def in_thread(target: Callable[..., object], args: tuple[Any, ...] = (), name: str | None = None, daemon: bool = True,
              silent: bool = False) -> threading.Thread:
    """Starts target(*args) in a thread, and returns it. silent: what it raises is kept to itself."""
    if not isinstance(args, tuple):
        raise ValueError(f"args is no tuple: {args!r}")

    def quietly(*arguments):
        try:
            target(*arguments)
        except Exception:
            pass

    thread = threading.Thread(target=quietly if silent else target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event: threading.Event, func: Callable[..., object], args: Iterable[Any] = (), stop: threading.Event | None = None,
             check_stop_interval_s: float = 1.0, daemon: bool = True, silent: bool = False) -> threading.Thread:
    """Calls func(*args) in a thread when `event` is set, unless `stop` is before."""
    if event is None:
        raise ValueError("there is no event")

    def wait():
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(fn: Callable[..., _Result], args_list: Sequence[Iterable[Any]],
                                   block_until_all_done: bool = True,
                                   max_concurrent_executions: int = 1000) -> dict[int, _Result] | None:
    """fn(*args) for each of args_list, in as many threads at most; {index: result} when all are done, or None at once."""
    left: queue.Queue[tuple[int, Iterable[Any]]]
    results: queue.Queue[tuple[int, Any, BaseException | None]]
    left, results = queue.Queue(), queue.Queue()
    for index, arguments in enumerate(args_list):
        left.put((index, arguments))

    def work():
        while True:
            try:
                index, arguments = left.get_nowait()
            except queue.Empty:
                return
            try:
                results.put((index, fn(*arguments), None))
            except BaseException as error:
                results.put((index, None, error))

    for _ in range(min(len(args_list), max_concurrent_executions)):
        in_thread(work, daemon=not block_until_all_done)
    if not block_until_all_done:
        return None
    found = {}
    for _ in args_list:
        index, result, error = results.get()
        if error is not None:
            raise error
        found[index] = result
    return found
