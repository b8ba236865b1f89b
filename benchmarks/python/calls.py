"""An all-reduce of tensors, timed on two ranks: by Horovod's interface (hvd: Lockstep's; horovod: the real one's), or by
torch.distributed's (c10d: over Lockstep; gloo). With --ranks N it is Horovod's launcher, as its programs need it."""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent / "training")]

import horovod_step  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("hvd", "horovod", "c10d", "gloo"))
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True, help="in each of 5 turns")
    parser.add_argument("--out-of-place", action="store_true")
    return parser.parse_args()


def call_of(options, tensor):
    """(what is timed, this rank, what ends)"""
    if options.mode in ("hvd", "horovod"):
        if options.mode == "hvd":
            import lockstep.torch as hvd
        else:
            import horovod.torch as hvd
        hvd.init()
        if options.out_of_place:
            return lambda: hvd.allreduce(tensor, op=hvd.Sum, name="x"), hvd.rank(), hvd.shutdown
        return lambda: hvd.allreduce_(tensor, op=hvd.Sum, name="x"), hvd.rank(), hvd.shutdown
    import torch.distributed as dist

    if options.mode == "c10d":
        import lockstep.c10d  # noqa: F401
    dist.init_process_group("lockstep" if options.mode == "c10d" else "gloo")
    return lambda: dist.all_reduce(tensor), dist.get_rank(), dist.destroy_process_group


def main():
    import torch

    options = parse_arguments()
    torch.set_num_threads(1)
    tensor = torch.zeros(max(options.bytes // 4, 1))
    call, rank, end = call_of(options, tensor)
    for _ in range(options.calls // 5 + 1):
        call()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(options.calls):
            call()
        seconds.append((time.perf_counter() - begin) / options.calls)
    if rank == 0:
        print(json.dumps({"case": options.mode, "seconds": statistics.median(seconds)}), flush=True)
    end()


if __name__ == "__main__":
    horovod_step.be_launcher_or_pinned(__file__)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads now and then wait for ever at a program's end
