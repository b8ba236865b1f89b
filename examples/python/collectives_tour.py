"""torch.distributed's collectives over Lockstep, one after another, each with what every rank has afterwards.

  lockstep run -np 4 python3 examples/python/collectives_tour.py
"""
import torch
import torch.distributed as dist

import lockstep.c10d  # noqa: F401  not needed where the wheel is installed, from torch 2.5 on


def numbers(count=1):
    return torch.full((count,), float(dist.get_rank()))


def send_and_receive():
    """Rank 0's number goes to rank 1."""
    x = torch.tensor([42.0 if dist.get_rank() == 0 else 0.0])
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(x, src=0)
    return x


def in_a_ring():
    """Each to the next, all at once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.empty(1)
    for work in [dist.isend(numbers(), (rank + 1) % size), dist.irecv(x, (rank - 1) % size)]:
        work.wait()
    return x


def broadcast():
    x = numbers()
    dist.broadcast(x, src=1)
    return x


def reduce():
    """The sum, on rank 0."""
    x = numbers()
    dist.reduce(x, dst=0)
    return x if dist.get_rank() == 0 else None


def all_reduce():
    x = numbers()
    dist.all_reduce(x, op=dist.ReduceOp.SUM)
    return x


def scatter():
    size = dist.get_world_size()
    x = torch.empty(1)
    dist.scatter(x, [torch.tensor([10.0 * rank]) for rank in range(size)] if dist.get_rank() == 0 else None, src=0)
    return x


def gather():
    size = dist.get_world_size()
    all_of_them = [torch.empty(1) for _ in range(size)] if dist.get_rank() == 0 else None
    dist.gather(numbers(), all_of_them, dst=0)
    return all_of_them and torch.cat(all_of_them)


def all_gather():
    x = torch.empty(dist.get_world_size())
    dist.all_gather_into_tensor(x, numbers())
    return x


def reduce_scatter():
    """Of the sum of all blocks each rank gets its own."""
    x = torch.empty(1)
    dist.reduce_scatter_tensor(x, torch.arange(dist.get_world_size(), dtype=torch.float32))
    return x


def all_to_all():
    """Block i of each goes to rank i."""
    size = dist.get_world_size()
    x = torch.empty(size)
    dist.all_to_all_single(x, numbers() * 10 + torch.arange(size))
    return x


def in_a_group():
    """The sum over the even ranks alone."""
    group = dist.new_group(range(0, dist.get_world_size(), 2))
    x = numbers()
    if dist.get_rank() % 2 == 0:
        dist.all_reduce(x, group=group)
    return x


def objects():
    all_of_them = [None] * dist.get_world_size()
    dist.all_gather_object(all_of_them, {"rank": dist.get_rank()})
    return [one["rank"] for one in all_of_them]


def main():
    dist.init_process_group("lockstep")
    if dist.get_world_size() < 2:
        raise SystemExit("the tour takes two ranks and more: lockstep run -np 2 python3 collectives_tour.py")
    for step in (send_and_receive, in_a_ring, broadcast, reduce, all_reduce, scatter, gather, all_gather, reduce_scatter, all_to_all,
                 in_a_group, objects):
        result = step()
        said = result.tolist() if isinstance(result, torch.Tensor) else result
        of_all = [None] * dist.get_world_size()
        dist.all_gather_object(of_all, said)
        if dist.get_rank() == 0:
            print(f"{step.__name__}: " + "; ".join(f"rank {rank} has {one}" for rank, one in enumerate(of_all)), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
