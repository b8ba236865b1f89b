"""What gpu_collectives.cpp times, by torch.distributed: over NCCL, each rank with a GPU of its own, or over Gloo, where ranks may share
one."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=-1)
    parser.add_argument("--by", choices=("gloo", "nccl"), required=True)
    parser.add_argument("--op", type=lambda text: text.split(","), required=True)
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], required=True)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=11)
    return parser.parse_args()


def call_of(operation, size, device, ranks):
    """What begins a call, of so many bytes in the larger of a rank's buffers."""
    whole = torch.ones(max(size // 4, ranks), device=device)
    part = torch.ones(len(whole) // ranks, device=device)
    parts = whole[:len(part) * ranks]
    return {"all_reduce": lambda: dist.all_reduce(whole, async_op=True),
            "broadcast": lambda: dist.broadcast(whole, 0, async_op=True),
            "all_gather": lambda: dist.all_gather_into_tensor(parts, part, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, parts, async_op=True)}[operation]


def us_of(call, rounds, calls):
    times = []
    for number in range(rounds + 1):
        torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for work in [call() for _ in range(calls)]:
            work.wait()
        torch.cuda.synchronize()
        if number:
            times.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(times)


def main():
    options = parse_arguments()
    device = torch.device("cuda", options.device if options.device >= 0 else int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group(options.by)
    for operation in options.op:
        for size in options.sizes:
            call = call_of(operation, size, device, dist.get_world_size())
            try:
                one, at_once = us_of(call, options.rounds, 1), us_of(call, options.rounds, options.calls)
            except RuntimeError as error:  # Gloo has not all of them on GPUs
                if dist.get_rank() == 0:
                    print(json.dumps({"op": operation, "bytes": size, "missing": str(error).splitlines()[0]}), flush=True)
                break
            if dist.get_rank() == 0:
                print(json.dumps({"op": operation, "bytes": size, "one_us": round(one, 3), "at_once_us": round(at_once, 3)}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
    os._exit(0)  # as training/peer_step.py says
