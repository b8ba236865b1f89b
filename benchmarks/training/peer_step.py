"""A rank of torch's DistributedDataParallel over Gloo, with or without ZeroRedundancyOptimizer, or of the same program
unconnected: as training_step.cpp, with the same models, and started by the same launcher."""
import contextlib
import os

import agreement
import stepping
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def parse_arguments():
    parser = stepping.parser(__doc__)
    parser.add_argument("--gradient-as-bucket-view", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--parameters-as-bucket-view", action="store_true", help="ZeroRedundancyOptimizer's")
    parser.add_argument("--bucket-cap-mb", type=float, default=25)
    return parser.parse_args()


def connected(options, net):
    return DistributedDataParallel(net, gradient_as_bucket_view=options.gradient_as_bucket_view,
                                   static_graph=options.static_graph, bucket_cap_mb=options.bucket_cap_mb)


def optimizer_for(options, net):
    kind, arguments = stepping.optimizer_of(options)
    if options.mode == "zero":
        return ZeroRedundancyOptimizer(net.parameters(), optimizer_class=kind,
                                       parameters_as_bucket_view=options.parameters_as_bucket_view, **arguments)
    return kind(net.parameters(), **arguments)


def main():
    options = parse_arguments()
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    net, inputs, targets = stepping.start(options, dist.get_rank())
    forward = net if options.mode == "unconnected" else connected(options, net)
    optimizer = optimizer_for(options, net)
    with forward.no_sync() if options.without_averaging else contextlib.nullcontext():
        mine = stepping.measure(options, forward, optimizer, inputs, targets)
    mine += agreement.compare(options, net, ranks, lambda tensor: dist.broadcast(tensor, 0))
    everybody = [torch.zeros(len(mine), dtype=torch.float64) for _ in range(ranks)]
    dist.all_gather(everybody, torch.tensor(mine, dtype=torch.float64))
    if dist.get_rank() == 0:
        stepping.report(options, len(inputs), torch.stack(everybody))


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
    # Without destroy_process_group(): in torch 2.0 it now and then waits for ever for Gloo's thread, which waits for the
    # interpreter's lock to let go of the last call's tensors.
    os._exit(0)
