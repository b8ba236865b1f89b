"""As agreement.h: what a run leaves, compared with other ranks and with one process that has the whole batch."""
import models
import stepping
import torch


def flat_parameters(net):
    return torch.cat([parameter.detach().flatten().cpu() for parameter in net.parameters()])


def parameters_of_one_process(options, ranks):
    net = models.net_of(options.model).to(options.device)
    batches = [models.batch_of(options.model, rank, options.device) for rank in range(ranks)]
    if not list(net.buffers()):  # batch norm's statistics are those of a rank's batch
        batches = [tuple(torch.cat(parts) for parts in zip(*batches))]
    kind, arguments = stepping.OPTIMIZERS[options.optimizer]
    optimizer = kind(net.parameters(), **arguments)
    for _ in range(options.warm_up + options.steps):
        optimizer.zero_grad()
        for inputs, targets in batches:
            (torch.nn.functional.cross_entropy(net(inputs), targets) / len(batches)).backward()
        optimizer.step()
    return flat_parameters(net)


def compare(options, net, ranks, broadcast):
    """[the largest difference to rank 0's parameters, the share of one process's way that this run went astray].
    `broadcast`: gives a tensor rank 0's values."""
    mine = flat_parameters(net)
    theirs = mine.clone()
    broadcast(theirs)
    error = 0.0
    if options.check:
        begin = flat_parameters(models.net_of(options.model))
        end = parameters_of_one_process(options, ranks)
        error = ((mine - end).norm() / (end - begin).norm()).item()
    return [(mine - theirs).abs().max().item(), error]
