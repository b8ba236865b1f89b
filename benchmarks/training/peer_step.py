"""A rank of torch's DistributedDataParallel over Gloo, with or without ZeroRedundancyOptimizer: as training_step.cpp,
with the same models, and started by the same launcher."""
import os

import stepping
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def main():
    options = stepping.parser(__doc__).parse_args()
    dist.init_process_group("gloo")
    net, inputs, targets = stepping.start(options)
    ddp = DistributedDataParallel(net)
    kind, arguments = stepping.OPTIMIZERS[options.optimizer]
    if options.mode == "zero":
        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=kind, **arguments)
    else:
        optimizer = kind(ddp.parameters(), **arguments)
    average = stepping.measure(options, ddp, optimizer, inputs, targets)
    dist.all_reduce(average)
    if dist.get_rank() == 0:
        stepping.report(average / dist.get_world_size(), len(inputs), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
