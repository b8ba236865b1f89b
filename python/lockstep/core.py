"""liblockstep_c.so by ctypes: its functions, with errors as exceptions. Nothing here knows a framework.

Every call leaves the interpreter's lock while it is in C. Waits for works return every 100 ms, so that Ctrl-C is heard; join() and what
begins a world or a set wait in one piece.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import TYPE_CHECKING, Any

from lockstep.common.exceptions import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PENDING, UNSUPPORTED = -1, 6
WORLD = 0
# Element types, ways to combine them and named operations, as in lockstep_c.h.
U8, I32, I64, F16, BF16, F32, F64, I8, U16, I16, U32, U64, BOOL, COMPLEX64, COMPLEX128 = range(15)
SUM, PRODUCT, MIN, MAX, AVERAGE, BAND, BOR, BXOR, ADASUM = range(9)
NAMED_ALL_REDUCE, NAMED_BROADCAST, NAMED_ALL_GATHER, NAMED_ALL_TO_ALL, NAMED_REDUCE_SCATTER, NAMED_BARRIER = range(1, 7)
_SLICE_MS = 100
_VERSION = 6

_pointer, _int, _size, _int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int64
_MAKE_OUTPUT = ctypes.CFUNCTYPE(_pointer, _pointer, _size)


class Place(ctypes.Structure):
    """Where this rank is in a set: lockstep_place."""

    _fields_ = [(name, ctypes.c_int32) for name in
                ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous")]


def _find_library() -> str:
    """LOCKSTEP_C_LIBRARY, or what lies beside this package, in a wheel or an installation."""
    named = os.environ.get("LOCKSTEP_C_LIBRARY")
    if named:
        return named
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here / "lib", here / "lib64", here.parents[1] / "lib"):
        for name in ("liblockstep_c.so.1", "liblockstep_c.so"):
            if (folder / name).exists():
                return str(folder / name)
    return "liblockstep_c.so.1"


def _load() -> ctypes.CDLL:
    name = _find_library()
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"lockstep: cannot load {name}: {error}; LOCKSTEP_C_LIBRARY says where it is") from None
    for function, result, arguments in (
            ("c_version", _int, []),
            ("last_error", ctypes.c_char_p, []),
            ("last_error_rank", _int, []),
            ("init", _int, []),
            ("init_at", _int, [_int, _int, ctypes.c_char_p, _int]),
            ("shutdown", _int, []),
            ("is_initialized", _int, []),
            ("world_has_changed", _int, []),
            ("worlds", _int, []),
            ("incarnation", _int, []),
            ("set_place", _int, [_int, ctypes.POINTER(Place)]),
            ("set_new", _int, [ctypes.POINTER(ctypes.c_int32), _int, ctypes.POINTER(_int)]),
            ("set_free", _int, [_int]),
            ("test", _int, [_pointer]),
            ("wait", _int, [_pointer, _int64]),
            ("work_output", _int, [_pointer, ctypes.POINTER(_pointer), ctypes.POINTER(_size),
                                   ctypes.POINTER(ctypes.POINTER(_int64)), ctypes.POINTER(_int)]),
            ("work_source", _int, [_pointer]),
            ("work_free", None, [_pointer]),
            ("work_abandon", None, [_pointer]),
            ("all_reduce", _int, [_int, _pointer, _pointer, _size, _int, _int, _pointer]),
            ("reduce", _int, [_int, _pointer, _pointer, _size, _int, _int, _int, _pointer]),
            ("reduce_scatter", _int, [_int, _pointer, _pointer, _size, _int, _int, _pointer]),
            ("broadcast", _int, [_int, _pointer, _size, _int, _pointer]),
            ("all_gather", _int, [_int, _pointer, _pointer, _size, _pointer]),
            ("gather", _int, [_int, _pointer, _pointer, _size, _int, _pointer]),
            ("scatter", _int, [_int, _pointer, _pointer, _size, _int, _pointer]),
            ("all_to_all", _int, [_int, _pointer, _pointer, _size, _pointer]),
            ("all_to_all_v", _int, [_int, _pointer, ctypes.POINTER(_size), _pointer, ctypes.POINTER(_size), _pointer]),
            ("barrier", _int, [_int, _pointer]),
            ("send", _int, [_int, _pointer, _size, _int, _int, _pointer]),
            ("recv", _int, [_int, _pointer, _size, _int, _int, _pointer]),
            ("use_gpu", None, [_int, _pointer]),
            ("set_has_gpu", _int, [_int, _int]),
            ("gpu_can_reduce", _int, [_int, _int]),
            ("request_new", _int, [_int, ctypes.c_char_p, _int, _int, _int, _int, ctypes.c_double, ctypes.c_double, _int,
                                   ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(_int64), ctypes.POINTER(_pointer)]),
            ("request_free", None, [_pointer]),
            ("submit", _int, [_pointer, ctypes.POINTER(_pointer), ctypes.POINTER(_int64), ctypes.POINTER(_pointer)]),
            ("submit_with_output", _int, [_pointer, ctypes.POINTER(_pointer), ctypes.POINTER(_int64), _MAKE_OUTPUT, _pointer,
                                          ctypes.POINTER(_pointer)]),
            ("request_takes_gpu", _int, [_pointer]),
            ("join", _int, [_int, ctypes.POINTER(_int)]),
            ("allocate", _int, [_int, _size, ctypes.POINTER(_pointer)]),
            ("allocate_free", None, [_pointer]),
            ("register_memory", _int, [_int, _pointer, _size]),
            ("register_memory_free", None, [_pointer]),
            ("range_new", _pointer, [ctypes.c_char_p]),
            ("range_free", None, [_pointer]),
            ("timeline_start", _int, [ctypes.c_char_p]),
            ("timeline_stop", _int, [])):
        found = getattr(library, "lockstep_" + function)
        found.restype, found.argtypes = result, arguments
    if library.lockstep_c_version() < _VERSION:
        raise ImportError(f"lockstep: {name} has version {library.lockstep_c_version()} of its interface, this package needs "
                          f"{_VERSION}")
    return library


_library = _load()


def library_path() -> str:
    """Where the library is that this process has loaded."""
    with open("/proc/self/maps") as maps:
        return next(line.split(maxsplit=5)[5].strip() for line in maps if "/liblockstep_c" in line)


def _check(status: int) -> int:
    if status > 0:
        raise error_of(status, _library.lockstep_last_error().decode(errors="replace"), _library.lockstep_last_error_rank())
    return status


def init() -> None:
    """Joins the job's world, under whatever started this process. Again while it is there: nothing."""
    _check(_library.lockstep_init())


def init_at(rank: int, size: int, address: str, port: int) -> None:
    """The same for who knows better than the environment which process this is: lockstep_init_at."""
    _check(_library.lockstep_init_at(rank, size, address.encode(), port))


def shutdown() -> None:
    """Leaves it; init() then joins the job's next one."""
    _requests.clear()
    _check(_library.lockstep_shutdown())


def is_initialized() -> bool:
    """Whether this process has a world."""
    return bool(_library.lockstep_is_initialized())


def world_has_changed() -> bool:
    """Whether ranks have come or gone since this world was made, in a job whose ranks may die and come back."""
    return bool(_library.lockstep_world_has_changed())


def worlds() -> int:
    """How many worlds this process has come to."""
    return _library.lockstep_worlds()


def ranks_may_change() -> bool:
    """Whether this is such a job: `lockstep run --tolerate`, --restart or --min-np."""
    return "LOCKSTEP_INCARNATION" in os.environ


def incarnation() -> int:
    """How often this rank was started again by itself after a failure; 0 at first."""
    return _library.lockstep_incarnation()


def place(number: int) -> Place:
    """Where this rank is in set `number`."""
    found = Place()
    _check(_library.lockstep_set_place(number, found))
    return found


def new_set(ranks: Sequence[int]) -> int:
    """The number of a new set of these ranks of the world. Collective over them, and over them alone."""
    number = _int()
    _check(_library.lockstep_set_new((ctypes.c_int32 * len(ranks))(*ranks), len(ranks), number))
    return number.value


def free_set(number: int) -> None:
    """Forgets set `number`, and what was asked in it."""
    for key in [key for key in _requests if key[0] == number]:
        del _requests[key]
    _check(_library.lockstep_set_free(number))


def set_has_gpu(number: int, device: int) -> bool:
    """Whether the set's calls can be on GPU `device` of this rank; on all ranks the same (lockstep_set_has_gpu)."""
    status = _library.lockstep_set_has_gpu(number, device)
    return status != UNSUPPORTED and _check(status) == 0


def gpu_can_reduce(dtype: int, op: int) -> bool:
    """Whether they combine elements so there."""
    return bool(_library.lockstep_gpu_can_reduce(dtype, op))


def join(number: int) -> int:
    """Returns the rank that joined last."""
    last = _int()
    _check(_library.lockstep_join(number, last))
    return last.value


def start_timeline(path: str | os.PathLike[str]) -> None:
    """Begins a timeline of what all ranks do, which rank 0 will write to `path`. Collective over the world."""
    _check(_library.lockstep_timeline_start(os.fsencode(path)))


def stop_timeline() -> None:
    """Returns when its file is there. Collective over the world."""
    _check(_library.lockstep_timeline_stop())


class Memory:
    """Memory that the other ranks of this host reach, which collectives need not copy; given back with this object."""

    def __init__(self, number: int, size: int) -> None:
        address: Any = _pointer()
        _check(_library.lockstep_allocate(number, size, address))
        self.address, self.bytes = address.value, size

    def __del__(self) -> None:
        if getattr(self, "address", None):
            _library.lockstep_allocate_free(self.address)

    def buffer(self) -> ctypes.Array[ctypes.c_char]:
        """A writable buffer over it, which keeps it."""
        made: Any = (ctypes.c_char * self.bytes).from_address(self.address)
        made.memory = self
        return made


class Registered:
    """So many bytes at an address, which the other ranks of this host reach as long as this object lives (lockstep_register_memory).
    Keeps whose memory it is."""

    def __init__(self, number: int, address: int, size: int, kept: object) -> None:
        _check(_library.lockstep_register_memory(number, address, size))
        self._address, self._kept = address, kept

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            _library.lockstep_register_memory_free(self._address)


class Work:
    """An operation under way. Keeps what it was given until it is over."""

    def __init__(self, address: int | None, kept: object, of_program: Sequence[BaseException] = ()) -> None:
        self._address, self._kept, self._of_program = address, kept, of_program

    def _is_over(self, status: int) -> bool:
        if status == PENDING or not self._of_program:
            return _check(status) != PENDING
        cause = self._of_program[0]  # an exception in make_output(), of which the rest has failed
        if status == 0 or not isinstance(cause, Exception):
            raise cause
        try:
            return _check(status) != PENDING
        except Exception as error:
            raise error from cause

    def test(self) -> bool:
        """Whether it is over. Raises what it failed of."""
        return self._is_over(_library.lockstep_test(self._address))

    def wait(self) -> None:
        """Returns when it is over. Raises what it failed of."""
        while not self.wait_for(_SLICE_MS):
            pass

    def wait_for(self, milliseconds: int) -> bool:
        """Whether it is over, after so long at most. Raises what it failed of."""
        return self._is_over(_library.lockstep_wait(self._address, milliseconds))

    def follow(self) -> bool:
        """Of a call on a GPU: what its stream gets from now on comes after it. Waits for nothing; True. Raises what it failed of."""
        return _check(_library.lockstep_wait(self._address, -1)) != PENDING

    def source(self) -> int:
        """Of a receive that is over: the rank in its set that has sent it."""
        return _library.lockstep_work_source(self._address)

    def output(self) -> tuple[int | None, int, list[int]]:
        """(address, bytes, rows) of what it has made. The memory lives as long as this object."""
        data, size, rows, count = _pointer(), _size(), ctypes.POINTER(_int64)(), _int()
        _check(_library.lockstep_work_output(self._address, data, size, rows, count))
        return data.value, size.value, rows[:count.value]

    def output_buffer(self) -> tuple[ctypes.Array[ctypes.c_char], int, list[int]]:
        """A writable buffer over what it has made, which keeps this object; and the rows."""
        address, size, rows = self.output()
        buffer: Any = (ctypes.c_char * max(size, 1)).from_address(address)  # type: ignore[arg-type]  # there is one
        buffer.work = self
        return buffer, size, rows

    def abandon(self) -> None:
        """Ends it without waiting: unless it is over, its group fails at once on all ranks, and this one is named."""
        address, self._address = self._address, None
        _library.lockstep_work_abandon(address)

    def __del__(self) -> None:
        if not getattr(self, "_address", None):
            return
        if getattr(_in_callback, "is_so", False):  # in which torch may collect garbage, and nothing waits
            _to_free.append((self._address, self._kept))
        else:
            _library.lockstep_work_free(self._address)


_in_callback = threading.local()
_to_free: list[tuple[int | None, object]] = []  # works, and what they keep


def _free_works() -> None:
    while _to_free:
        address, _ = kept = _to_free.pop()  # kept until it is over
        _library.lockstep_work_free(address)
        del kept


class Request:
    """A lockstep_request."""

    def __init__(self, number: int, name: str, operation: int, dtype: int, reduce_op: int, root: int, prescale: float, postscale: float,
                 shapes: tuple[tuple[int, ...], ...]) -> None:
        dimensions = (ctypes.c_int32 * max(len(shapes), 1))(*map(len, shapes))
        sizes = [size for shape in shapes for size in shape]
        if "\0" in name:
            raise ValueError(f"a name with an end in its middle: {name!r}")
        address: Any = _pointer()
        _check(_library.lockstep_request_new(number, name.encode(), operation, dtype, reduce_op, root, prescale, postscale,
                                             len(shapes), dimensions, (_int64 * max(len(sizes), 1))(*sizes), address))
        self.address = address.value
        self._takes_gpu: bool | None = None

    def takes_gpu(self) -> bool:
        """Whether it may be submitted with buffers on a GPU. Loads CUDA's driver."""
        if self._takes_gpu is None:
            self._takes_gpu = bool(_library.lockstep_request_takes_gpu(self.address))
        return self._takes_gpu

    def __del__(self):
        if getattr(self, "address", None):
            _library.lockstep_request_free(self.address)


_requests: dict[tuple[Any, ...], Request] = {}  # what has been asked before: programs ask for the same in each step
_MOST_REQUESTS = 1 << 16


def request(number: int, name: str, operation: int, *, dtype: int = U8, reduce_op: int = SUM, root: int = 0, prescale: float = 1.0,
            postscale: float = 1.0, shapes: tuple[tuple[int, ...], ...] = ()) -> Request:
    """What is to be done under this name (lockstep_request_new). shapes: a tuple of sizes for each buffer; of all_gather and all_to_all
    without the first one."""
    key = (number, name, operation, dtype, reduce_op, root, prescale, postscale, shapes)
    found = _requests.get(key)
    if found is None:
        if len(_requests) >= _MOST_REQUESTS:
            _requests.clear()
        found = _requests[key] = Request(*key)
    return found


def submit_request(of: Request, addresses: Sequence[int] = (), rows: Sequence[int] = (), kept: object = None,
                   place: tuple[int, int] | None = None, make_output: Callable[[int], int] | None = None) -> Work:
    """Begins it (lockstep_submit) and returns its Work. addresses: where the buffers are. rows: all_gather: how many this rank has;
    all_to_all: how many it sends to each. kept: what the Work keeps alive. place: as begin() has it, where of.takes_gpu(). make_output:
    gives the address of so many bytes for a result there, which nothing uses any more, from any thread."""
    _free_works()
    address = _pointer()
    buffers = _pointer(*addresses) if len(addresses) <= 1 else (_pointer * len(addresses))(*addresses)
    its_rows = (_int64 * len(rows))(*rows) if rows else None
    if make_output is None:
        _check(_on(place, _library.lockstep_submit, of.address, buffers, its_rows, address))
        return Work(address.value, kept)
    failures: list[BaseException] = []

    def make(_: object, size: int) -> int | None:
        _in_callback.is_so = True
        try:
            return make_output(size)
        except BaseException as error:  # noqa: BLE001  # C cannot have it; whoever waits gets it
            failures.append(error)
            return None
        finally:
            _in_callback.is_so = False

    called = _MAKE_OUTPUT(make)
    _check(_on(place, _library.lockstep_submit_with_output, of.address, buffers, its_rows, called, None, address))
    return Work(address.value, (kept, called), failures)


def submit(number: int, name: str, operation: int, *, addresses: Sequence[int] = (), rows: Sequence[int] = (), kept: object = None,
           **request_options: Any) -> Work:
    """Both at once, in main memory."""
    return submit_request(request(number, name, operation, **request_options), addresses, rows, kept)


def _on(place, call, *arguments):
    """What the call says of buffers there."""
    if place is None:
        return call(*arguments)
    _library.lockstep_use_gpu(*place)
    try:
        return call(*arguments)
    finally:
        _library.lockstep_use_gpu(-1, None)


def begin(operation: str, number: int, *arguments: Any, kept: object = None, place: tuple[int, int] | None = None) -> Work:
    """Begins what comes in the order of calls, "all_reduce" for lockstep_all_reduce(), with its arguments but for the work, and returns
    its Work. kept: what the Work keeps alive. place: the GPU whose memory the buffers are, and a stream's handle; None: main memory."""
    address = _pointer()
    _check(_on(place, getattr(_library, "lockstep_" + operation), number, *arguments, ctypes.byref(address)))
    return Work(address.value, kept)


def sizes(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_size_t]:
    """As all_to_all_v takes them."""
    return (_size * max(len(numbers), 1))(*numbers)


class Range:
    """A range of time in the timeline: `with Range("forward"):`."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def __enter__(self) -> Range:
        self._address = _library.lockstep_range_new(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        _library.lockstep_range_free(self._address)
