"""A training step of a model of benchmarks/training, timed on two ranks: `lockstep` and `horovod` by DistributedOptimizer;
`c10d` and `gloo` by torch's DistributedDataParallel, `registered` as `c10d` with lockstep.c10d.register_buckets(), `nothing` with a
communication hook that sends nothing; `unconnected` by itself. With --ranks N it is Horovod's launcher, as its programs need it."""
import json
import os
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent / "training")]

import horovod_step  # noqa: E402

MODES = ("lockstep", "horovod", "c10d", "registered", "gloo", "nothing", "unconnected")


def sends_nothing(_, bucket):
    import torch

    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def main():
    import stepping
    import torch

    parser = stepping.parser(__doc__)
    options = parser.parse_args()
    if options.mode not in MODES:
        parser.error(f"--mode: one of {', '.join(MODES)}")
    if options.mode in ("lockstep", "horovod"):
        if options.mode == "lockstep":
            import lockstep.torch as hvd
        else:
            import horovod.torch as hvd
        hvd.init()
        rank = hvd.rank()
    else:
        import torch.distributed as dist

        is_ours = options.mode in ("c10d", "registered")
        if is_ours:
            import lockstep.c10d
        dist.init_process_group("lockstep" if is_ours else "gloo")
        rank = dist.get_rank()
    net, inputs, targets = stepping.start(options, rank)
    kind, arguments = stepping.optimizer_of(options)
    optimizer, forward = kind(net.parameters(), **arguments), net
    if options.mode in ("lockstep", "horovod"):
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    elif options.mode != "unconnected":
        forward = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        if options.mode == "nothing":
            forward.register_comm_hook(None, sends_nothing)
        elif options.mode == "registered":
            lockstep.c10d.register_buckets(forward)
    seconds, *_ = stepping.measure(options, forward, optimizer, inputs, targets)
    if rank == 0:
        print(json.dumps({"case": options.mode, "seconds": seconds}), flush=True)
    if options.mode in ("lockstep", "horovod"):
        hvd.shutdown()


if __name__ == "__main__":
    horovod_step.be_launcher_or_pinned(__file__)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads now and then wait for ever at a program's end
