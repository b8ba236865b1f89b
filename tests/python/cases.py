"""Cases that programs for Horovod ask of it, each with one answer: a tensor, a list, or the class of an error. torch_cases.py and
tensorflow_cases.py have them; the real Horovod's answers are recorded in answers/, and compare_answers.py compares."""
import importlib
import json
import sys
import warnings

CASES = {}
LEFT_OUT = "this case is left out"  # as an answer
ERRORS = ("HorovodInternalError", "ValueError", "NotImplementedError", "AssertionError", "TypeError", "RuntimeError")


def case(name):
    def add(function):
        assert name not in CASES, name
        CASES[name] = function
        return function
    return add


def add_common_cases():
    """Those that are the same for each framework."""
    @case("broadcast_object")
    def _(hvd):
        return hvd.broadcast_object({"rank": hvd.rank(), "list": [1, "two", 3.0]}, root_rank=1)

    @case("allgather_object")
    def _(hvd):
        return hvd.allgather_object([hvd.rank()] * hvd.rank())

    @case("process set twice")
    def _(hvd):
        one = hvd.add_process_set([0, 1])
        try:
            return hvd.add_process_set([0, 1])
        finally:
            hvd.remove_process_set(one)

    @case("place")
    def _(hvd):
        return [hvd.size(), hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_initialized()]


def add_cases_of_wrong_use(ones, float32, float64):
    """Of ranks that differ. `ones(shape, dtype=...)`: a tensor of the framework's."""
    @case("shapes that differ")
    def _(hvd):
        return hvd.allreduce(ones(3 + hvd.rank()), name="differs")

    @case("types that differ")
    def _(hvd):
        return hvd.allreduce(ones(3, dtype=float32 if hvd.rank() == 0 else float64), name="differs")

    @case("roots that differ")
    def _(hvd):
        return hvd.broadcast(ones(3), hvd.rank(), name="differs")

    @case("operations that differ")
    def _(hvd):
        return hvd.allreduce(ones(3), name="differs", op=hvd.Sum if hvd.rank() == 0 else hvd.Max)

    @case("rows of allgather that differ in another dimension")
    def _(hvd):
        return hvd.allgather(ones([2, 3 + hvd.rank()]), name="differs")


def joined(hvd, ones):
    """What a rank has that joins later than those of lower numbers."""
    found = [hvd.allreduce(ones(2), op=hvd.Sum, name=f"turn{turn}") for turn in range(2 + hvd.rank())]
    last = hvd.join()
    return [last, found[:2]]


def in_a_process_set(hvd, ones, more=lambda evens: []):
    """Of the ranks with even numbers; `more(set)`: answers besides."""
    evens = hvd.add_process_set([r for r in range(hvd.size()) if r % 2 == 0])
    found = [evens.included(), evens.size(), evens.ranks, evens.rank() if evens.included() else None]
    if evens.included():
        found += [hvd.allreduce(ones(2) * hvd.rank(), op=hvd.Sum, name="s", process_set=evens),
                  hvd.allgather(ones(1) * hvd.rank(), name="g", process_set=evens)]
    else:
        found += [None, None]
    return [*found, *more(evens), hvd.remove_process_set(evens)]


def plain_of(value, plain_tensor):
    made = plain_tensor(value)
    if made is not None:
        return made
    if isinstance(value, (list, tuple)):
        return [plain_of(one, plain_tensor) for one in value]
    return value


def answer(hvd, function, plain_tensor, errors):
    try:
        return plain_of(function(hvd), plain_tensor)
    except Exception as error:  # noqa: BLE001: which one is the answer
        names = [one.__name__ for one in type(error).__mro__]
        return {"error": next(name for name in errors + ("Exception",) if name in names), "text": str(error)}


def answer_all(plain_tensor, meet, errors=ERRORS):
    """`plain_tensor(value)`: {dtype, shape, values} of a tensor, None of anything else. `meet(module)`: a barrier
    before each case. The program's words are the module that is asked, and OUT: OUT.RANK gets a line of JSON for each case."""
    warnings.simplefilter("ignore")
    hvd = importlib.import_module(sys.argv[1])
    hvd.init()
    with open(f"{sys.argv[2]}.{hvd.rank()}", "w") as file:
        for name, function in CASES.items():
            meet(hvd)
            file.write(json.dumps({"case": name, "answer": answer(hvd, function, plain_tensor, errors)}) + "\n")
            file.flush()
    hvd.shutdown()
