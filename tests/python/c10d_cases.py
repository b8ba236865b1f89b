"""Operations of torch.distributed on a group of Gloo's and on one of Lockstep's, of the same ranks: what is different?

    lockstep run -np 2 python c10d_cases.py

Where device.py says another device, Lockstep's tensors are there, Gloo's on the CPU.

Each case is a function of the group. It returns what is compared: tensors, numbers, lists of them; or raises. Where Gloo refuses what
Lockstep does, the case says so by its name in MORE. Rank 0 says how many cases there were, and every rank which ones differ.
"""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import device
import lockstep.c10d  # noqa: F401

CASES, MORE = {}, set()
# What a made-up GPU has not, and what reads without a wait, which on a GPU is too early.
BEYOND_FAKE = {"all_reduce_of_complex", "all_reduce_of_sparse_tensors", "all_reduce_of_sparse_tensors_with_rows", "works_that_are_dropped"}
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
BITS = {"band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR}


def case(function, name=None, more=False):
    name = name or function.__name__
    CASES[name] = function
    if more:
        MORE.add(name)
    return function


def mine(group, *shape, dtype=torch.float32):
    """Small numbers that differ between ranks, whose sums and products are exact."""
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) % 3 + dist.get_rank(group) + 1).to(dtype)


# ---- Reductions ----

def add_all_reduce(op_name, op, dtype):
    def run(group):
        x = mine(group, 3, 5, dtype=dtype)
        dist.all_reduce(x, op=op, group=group)
        return x

    case(run, f"all_reduce {op_name} {dtype}")


def add_reduce(op_name, op):
    def run(group):
        root = dist.get_world_size(group) - 1
        x = mine(group, 7)
        dist.reduce(x, dst=dist.get_global_rank(group, root), op=op, group=group)
        return x if dist.get_rank(group) == root else None

    case(run, f"reduce {op_name}")


for each_name, each_op in OPS.items():
    for each_dtype in FLOATS + INTEGERS:
        add_all_reduce(each_name, each_op, each_dtype)
    add_reduce(each_name, each_op)
for each_name, each_op in BITS.items():
    for each_dtype in (torch.int32, torch.int64, torch.uint8):
        add_all_reduce(each_name, each_op, each_dtype)
add_all_reduce("average", dist.ReduceOp.AVG, torch.float32)
add_all_reduce("sum", dist.ReduceOp.SUM, torch.bool)
for each_shape in ((), (0,), (1,), (4, 0, 3), (100_000,)):
    case(lambda group, shape=each_shape: all_reduced(group, mine(group, *shape)), f"all_reduce of {each_shape}")


def all_reduced(group, x):
    dist.all_reduce(x, group=group)
    return x


@case
def all_reduce_of_complex(group):
    return all_reduced(group, torch.complex(mine(group, 4), mine(group, 4)))


@case
def all_reduce_of_a_part_of_a_tensor(group):
    whole = mine(group, 6, 4)
    dist.all_reduce(whole[1:3], group=group)
    return whole


case(lambda group: all_reduced(group, mine(group, 6, 4).t()), "all_reduce of a transposed tensor")


@case
def all_reduce_without_waiting_at_once(group):
    tensors = [mine(group, 10 * (i + 1)) for i in range(5)]
    works = [dist.all_reduce(x, group=group, async_op=True) for x in tensors]
    for work in reversed(works):
        work.wait()
    sums = [tensor.sum().item() for tensor in tensors]  # after which a GPU is through
    return tensors, sums, [work.is_completed() for work in works], [work.is_success() for work in works]


@case
def a_future_and_what_follows_it(group):
    x = mine(group, 4)
    future = dist.all_reduce(x, group=group, async_op=True).get_future()
    then = future.then(lambda done: done.value()[0] * 2)
    return then.wait(), future.done(), [list(map(float, x))]


@case
def a_work_that_is_looked_at(group):
    x = mine(group, 4)
    work = dist.all_reduce(x, group=group, async_op=True)
    while not work.is_completed():
        pass
    return x, work.result(), work.exception() is None


@case
def works_that_are_dropped(group):
    x = mine(group, 4)
    dist.all_reduce(x, group=group, async_op=True)
    dist.barrier(group)
    dist.barrier(group)
    return x


@case
def all_reduce_coalesced(group):
    tensors = [mine(group, 3), mine(group, 2, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(tensors, group=group)
    return tensors


@case
def all_reduce_under_a_coalescing_manager(group):
    tensors = [mine(group, 3), mine(group, 2, 2)]
    with dist._coalescing_manager(group=group):
        for x in tensors:
            dist.all_reduce(x, group=group)
    return tensors


def sparse(group):
    rank = dist.get_rank(group)
    return torch.sparse_coo_tensor([[rank, rank + 1], [0, 1]], [1.0 + rank, 2.0], (8, 3))


@case
def all_reduce_of_sparse_tensors(group):
    x = sparse(group)
    dist.all_reduce(x, group=group)
    return x.to_dense()


@case
def all_reduce_of_sparse_tensors_with_rows(group):
    rank = dist.get_rank(group)
    x = torch.sparse_coo_tensor([[rank] * (rank + 1)], torch.ones(rank + 1, 4), (8, 4))
    dist.all_reduce(x, group=group)
    return x.to_dense()


@case
def reduce_scatter_tensor(group):
    size = dist.get_world_size(group)
    out = torch.empty(3, 2)
    dist.reduce_scatter_tensor(out, mine(group, 3 * size, 2), group=group)
    return out


@case
def reduce_scatter_of_a_list(group):
    out = torch.empty(4)
    dist.reduce_scatter(out, [mine(group, 4) * (i + 1) for i in range(dist.get_world_size(group))], group=group)
    return out


# ---- Copies ----

def add_broadcast(dtype):
    def run(group):
        root = dist.get_world_size(group) - 1
        x = mine(group, 5, dtype=dtype)
        dist.broadcast(x, src=dist.get_global_rank(group, root), group=group)
        return x

    case(run, f"broadcast {dtype}")


for each_dtype in FLOATS + INTEGERS + (torch.bool,):
    add_broadcast(each_dtype)


@case
def all_gather_into_a_list(group):
    outs = [torch.empty(2, 3) for _ in range(dist.get_world_size(group))]
    dist.all_gather(outs, mine(group, 2, 3), group=group)
    return outs


@case
def all_gather_into_parts_of_one_tensor(group):
    whole = torch.zeros(dist.get_world_size(group), 3)
    dist.all_gather(list(whole.unbind()), mine(group, 3), group=group)
    return whole


@case
def all_gather_into_tensor(group):
    out = torch.empty(4 * dist.get_world_size(group), dtype=torch.int64)
    dist.all_gather_into_tensor(out, mine(group, 4, dtype=torch.int64), group=group)
    return out


@case
def all_gather_of_numbers(group):
    outs = [torch.empty(()) for _ in range(dist.get_world_size(group))]
    dist.all_gather(outs, mine(group), group=group)
    return outs


@case
def gather(group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    outs = [torch.empty(3) for _ in range(size)] if rank == 0 else None
    dist.gather(mine(group, 3), outs, dst=dist.get_global_rank(group, 0), group=group)
    return outs


@case
def scatter(group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    out = torch.empty(3)
    dist.scatter(out, [mine(group, 3) * i for i in range(size)] if rank == 0 else None, src=dist.get_global_rank(group, 0),
                 group=group)
    return out


@case
def all_to_all_single(group):
    out = torch.empty(2 * dist.get_world_size(group), 2)
    dist.all_to_all_single(out, mine(group, 2 * dist.get_world_size(group), 2), group=group)
    return out


@case
def all_to_all_single_with_splits(group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    sent, received = [to + 1 for to in range(size)], [rank + 1] * size
    out = torch.empty(sum(received), 2)
    dist.all_to_all_single(out, mine(group, sum(sent), 2), received, sent, group=group)
    return out


@case
def all_to_all_single_with_nothing_for_some(group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    sent = [3 if to == 0 else 0 for to in range(size)]
    received = [3 if rank == 0 else 0] * size
    out = torch.empty(sum(received))
    dist.all_to_all_single(out, mine(group, sum(sent)), received, sent, group=group)
    return out


def all_to_all_of_lists(group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    outs = [torch.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(outs, [mine(group, to + 1) for to in range(size)], group=group)
    return outs


case(all_to_all_of_lists, more=True)


# ---- Messages ----

def neighbours(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return dist.get_global_rank(group, (rank + 1) % size), dist.get_global_rank(group, (rank - 1) % size)


@case
def messages_around(group):
    after, before = neighbours(group)
    out = torch.empty(5)
    sending = dist.isend(mine(group, 5), after, group=group)
    source = dist.recv(out, before, group=group)
    sending.wait()
    return out, source == before


@case
def messages_from_anybody(group):
    after, before = neighbours(group)
    out = torch.empty(5)
    sending = dist.isend(mine(group, 5), after, group=group)
    source = dist.recv(out, group=group)
    sending.wait()
    return out, source == before


@case
def messages_by_tag(group):
    after, before = neighbours(group)
    first, second = torch.empty(2), torch.empty(3)
    receiving = [dist.irecv(second, before, group=group, tag=2), dist.irecv(first, before, group=group, tag=1)]
    sending = [dist.isend(mine(group, 2), after, group=group, tag=1), dist.isend(mine(group, 3), after, group=group, tag=2)]
    for work in receiving + sending:
        work.wait()
    return first, second


@case
def a_batch_of_messages(group):
    after, before = neighbours(group)
    out = torch.empty(4)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(group, 4), after, group=group),
                                    dist.P2POp(dist.irecv, out, before, group=group)])
    for work in works:
        work.wait()
    return out


# ---- Objects ----

@case
def objects_from_all(group):
    out = [None] * dist.get_world_size(group)
    dist.all_gather_object(out, {"rank": dist.get_rank(group), "text": "x" * dist.get_rank(group)}, group=group)
    return [one["rank"] for one in out], [len(one["text"]) for one in out]


@case
def objects_from_one(group):
    listed = [1, "two", [3.0]] if dist.get_rank(group) == 0 else [None] * 3
    dist.broadcast_object_list(listed, src=dist.get_global_rank(group, 0), group=group)
    return listed[0], listed[2]


@case
def objects_to_one(group):
    out = [None] * dist.get_world_size(group) if dist.get_rank(group) == 0 else None
    dist.gather_object(dist.get_rank(group) * 10, out, dst=dist.get_global_rank(group, 0), group=group)
    return out


@case
def objects_to_each(group):
    out = [None]
    listed = list(range(dist.get_world_size(group))) if dist.get_rank(group) == 0 else None
    dist.scatter_object_list(out, listed, src=dist.get_global_rank(group, 0), group=group)
    return out


@case
def objects_in_messages(group):
    out = [None, None]
    if dist.get_rank(group) == 0:
        dist.send_object_list([7, "x"], dst=dist.get_global_rank(group, 1), group=group)
    elif dist.get_rank(group) == 1:
        dist.recv_object_list(out, src=dist.get_global_rank(group, 0), group=group)
    return out[0]


# ---- Functional collectives ----

@case
def functional_all_reduce(group):
    return functional.all_reduce(mine(group, 4), "sum", group) + 0


@case
def functional_all_gather(group):
    return functional.all_gather_tensor(mine(group, 2, 2), 1, group) + 0


@case
def functional_reduce_scatter(group):
    return functional.reduce_scatter_tensor(mine(group, 4 * dist.get_world_size(group)), "sum", 0, group) + 0


@case
def functional_all_to_all(group):
    return functional.all_to_all_single(mine(group, 4 * dist.get_world_size(group)), None, None, group) + 0


@case
def functional_broadcast(group):
    return functional.broadcast(mine(group, 4), 0, group) + 0


# ---- Barriers, groups, wrong use ----

@case
def barriers(group):
    dist.barrier(group=group)
    dist.monitored_barrier(group=group)
    return dist.barrier(group=group, async_op=True).wait()


@case
def groups_of_some(group):
    backend = dist.get_backend(group)
    ranks = dist.get_process_group_ranks(group)
    alone = dist.new_group([ranks[0]], backend=backend)
    pair = dist.new_group(ranks[:2], backend=backend)
    found = []
    for each in (alone, pair):
        if each != dist.GroupMember.NON_GROUP_MEMBER:
            found.append(all_reduced(each, mine(each, 3)))
            dist.destroy_process_group(each)
    return found, dist.get_rank(pair) if dist.get_rank(group) > 1 else None


@case
def a_list_that_is_too_short(group):
    dist.all_gather([torch.empty(2)] * (dist.get_world_size(group) + 1), mine(group, 2), group=group)


@case
def an_output_that_is_too_small(group):
    dist.all_gather_into_tensor(torch.empty(1), mine(group, 2), group=group)


@case
def splits_that_do_not_add_up(group):
    size = dist.get_world_size(group)
    dist.all_to_all_single(torch.empty(size), mine(group, size), [2] * size, [1] * size, group=group)


@case
def a_root_that_does_not_exist(group):
    dist.broadcast(mine(group, 2), src=100, group=group)


@case
def types_that_differ(group):
    dist.all_gather([torch.empty(2, dtype=torch.int64)] * dist.get_world_size(group), mine(group, 2), group=group)


def outcome(function, group):
    try:
        return "result", function(group)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        b = b.cpu()
    if isinstance(a, torch.Tensor):
        return (isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape
                and torch.allclose(a.to(torch.complex128), b.to(torch.complex128), rtol=1e-3 if a.dtype == torch.bfloat16 else 1e-6))
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def main():
    warnings.simplefilter("ignore")
    for name in BEYOND_FAKE if device.IS_FAKE else ():
        del CASES[name]
    dist.init_process_group("gloo")
    everybody = list(range(dist.get_world_size()))
    groups = {backend: dist.new_group(everybody, backend=backend) for backend in ("gloo", "lockstep")}
    differ, done_more = 0, 0
    for name, function in CASES.items():
        gloo = outcome(function, groups["gloo"])
        with device.device():
            ours = outcome(function, groups["lockstep"])
        if name in MORE and gloo[0] == "error" and ours[0] == "result":
            done_more += 1
            continue
        if gloo[0] != ours[0] or (gloo[0] == "result" and not same(gloo[1], ours[1])):
            differ += 1
            print(f"rank {dist.get_rank()}: {name}: Gloo {gloo}, Lockstep {ours}", flush=True)
    if dist.get_rank() == 0:
        print(f"{len(CASES)} cases, {done_more} that Gloo refuses, {differ} differ", flush=True)
        device.tell_calls()
        sys.stdout.flush()
    os._exit(1 if differ else 0)  # Gloo's threads now and then abort the interpreter's end


if __name__ == "__main__":
    os.environ.setdefault("LOCKSTEP_TIMEOUT", "30s")
    main()
