"""The measuring program of torch.distributed's gloo: starts the ranks itself, as processes, and measures as all do
(measure.cpp). usage: collectives.py LIBRARY FLAGS..., the flags of collectives/options.h."""
import ctypes
import os
import signal
import sys
import traceback

import torch
import torch.distributed as dist

PR_SET_PDEATHSIG = 1  # linux/prctl.h
CLONE_NEWNET = 0x40000000  # linux/sched.h
# Of several hosts: the network namespace of each rank's, and the first one's address.
NETWORKS = list(filter(None, os.environ.get("BENCH_NETWORKS", "").split(",")))
ADDRESS = os.environ.get("BENCH_ADDRESS", "127.0.0.1")
DTYPES = {b"f32": torch.float32, b"bf16": torch.bfloat16}


class Functions(ctypes.Structure):
    """As in measure.cpp."""

    BARRIER = ctypes.CFUNCTYPE(ctypes.c_int)
    PREPARE = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    CALL = ctypes.CFUNCTYPE(ctypes.c_int)
    _fields_ = [("barrier", BARRIER), ("prepare", PREPARE), ("call", CALL)]


def tensor(address, elements, dtype):
    memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


def call_of(op, dtype, elements, input_address, output_address):
    """The operation as a function without arguments. Sizes are those of collectives/operation.h."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part = elements // ranks
    data = tensor(input_address, part if op == b"all_gather" else elements, dtype)
    result = tensor(output_address, part if op == b"reduce_scatter" else elements, dtype)
    partner = rank ^ 1

    def ping_pong():
        if rank < partner:
            dist.send(data, partner)
        dist.recv(result, partner)
        if rank > partner:
            dist.send(data, partner)

    return {
        b"all_reduce": lambda: dist.all_reduce(data),
        b"reduce_scatter": lambda: dist.reduce_scatter_tensor(result, data),
        b"all_gather": lambda: dist.all_gather_into_tensor(result, data),
        b"broadcast": lambda: dist.broadcast(data, 0),
        b"reduce": lambda: dist.reduce(data, 0),
        b"all_to_all": lambda: dist.all_to_all_single(result, data),
        b"send_recv": ping_pong if partner < ranks else lambda: None,
    }[op]


def reported(function):
    """What ctypes can call: 0, or 1 after an exception, which goes to the standard error."""

    def run(*arguments):
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0

    return run


def enter(network):
    with open(network) as namespace:
        return ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) == 0


def run_rank(library, arguments, rank, ranks, port):
    if library.bench_pin(*arguments, rank):  # before gloo starts threads
        return 1
    torch.set_num_threads(1)
    if NETWORKS and not enter(NETWORKS[rank]):
        return 1
    store = dist.TCPStore(ADDRESS, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    current = [None]

    def prepare(op, dtype, elements, *addresses):
        current[0] = call_of(op, DTYPES[dtype], elements, *addresses)

    functions = Functions(
        Functions.BARRIER(reported(dist.barrier)),
        Functions.PREPARE(reported(prepare)),
        Functions.CALL(reported(lambda: current[0]())),
    )
    return library.bench_run(*arguments, rank, ctypes.byref(functions))


def fork_rank(run):
    """The process in which run() is called with the number that is written to the pipe: (its id, the pipe)."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process:
        os.close(read_end)
        return process, write_end
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        code = run(int(os.read(read_end, 16)))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)  # nothing of the parent's is to be torn down here


def main():
    library = ctypes.CDLL(sys.argv[1])
    ranks = int(sys.argv[sys.argv.index("--ranks") + 1])
    words = [b"collectives", *map(os.fsencode, sys.argv[2:])]
    arguments = len(words), (ctypes.c_char_p * len(words))(*words)
    # Forked, so that importing torch, seconds of work, is done once; before anything here starts a thread.
    processes = [
        fork_rank(lambda port, rank=rank: run_rank(library, arguments, rank, ranks, port)) for rank in range(ranks)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    alive = [process for process, _ in processes]
    try:
        store = dist.TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
        for _, pipe in processes:
            os.write(pipe, str(store.port).encode())
        code = 0
        while alive and code == 0:
            process, status = os.wait()
            alive.remove(process)
            code = os.waitstatus_to_exitcode(status)
        return 0 if code == 0 else 1
    finally:
        for process in alive:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


if __name__ == "__main__":
    sys.exit(main())
