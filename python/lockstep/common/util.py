"""Small helpers that programs for Horovod find under this name."""
import contextlib
import os

from lockstep.common.basics import (  # noqa: F401
    ccl_built, ddl_built, gloo_built, mpi_built, nccl_built)


def is_version_greater_equal_than(version, target):
    """Whether version, "2.15.0", is target or newer; what stands behind the numbers, as in "2.0.0rc1", counts for nothing."""
    if not isinstance(version, str) or not isinstance(target, str) or len(target.split(".")) != 3:
        raise ValueError(f"versions are strings, and the second one has three parts: {version!r}, {target!r}")

    def numbers(text):
        digits = ("".join(char for char in part if char.isdigit()) for part in text.split("+")[0].split(".")[:3])
        return tuple(int(part or 0) for part in digits)

    return numbers(version) >= numbers(target)


def num_rank_is_power_2(num_rank):
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(values, parts):
    """`values` in so many lists of about the same length."""
    each, more = divmod(len(values), parts)
    ends = [number * each + min(number, more) for number in range(parts + 1)]
    return [values[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(value):
    try:
        iter(value)
    except TypeError:
        return False
    return True


def extension_available(ext_base_name, verbose=False):
    """Whether this framework ("torch", "tensorflow") can be used."""
    try:
        __import__(f"lockstep.{ext_base_name}")
    except ImportError:
        return False
    return True


def gpu_available(ext_base_name, verbose=False):
    """False: collectives work in main memory."""
    return False


@contextlib.contextmanager
def env(**variables):
    """The environment with these variables (None: as it is), until the block ends."""
    variables = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops):
    """What a call has asked for, by the older `average` or by `op`."""
    from lockstep.common.reductions import op_of

    return lambda op, average: op_of(average, op)
