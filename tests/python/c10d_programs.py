"""A program for torch.distributed over Lockstep, as its first word says; what rank R does says `probe R ...`.

    lockstep run -np 2 python c10d_programs.py ACTION [WORD ...]
"""
import datetime
import functools
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist

import device
import lockstep.c10d
import probe
from probe import ACTIONS, action

def say(*words):
    probe.tell(dist.get_rank() if dist.is_initialized() else "-", *words)


expect_error = functools.partial(probe.expect_error, say)


def begin(**more):
    dist.init_process_group("lockstep", **more)


def everywhere_the_same(tensor):
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    return all(torch.equal(other, others[0]) for other in others)


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch(step, rank, size=4):
    made = torch.Generator().manual_seed(1000 * step + rank)
    x, y = (torch.randn(size, width, generator=made, device="cpu") for width in (8, 4))
    here = torch.empty(0).device
    return x.to(here), y.to(here)


def losses_of(model, steps=5, optimizer=None):
    """Trains, and returns the losses of all ranks' batches, averaged."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x, y = batch(step, dist.get_rank())
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(round(mean.item(), 5))
    return losses


# ---- Programs that are right; each says what Gloo's run says, too ----

@action
def ddp():
    """DistributedDataParallel, its static graph, its communication hook, unused parameters, sync batch norm's statistics."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = torch.nn.parallel.DistributedDataParallel(net(dist.get_rank()))  # rank 0's parameters win
    say("losses", losses_of(model))
    hooked = torch.nn.parallel.DistributedDataParallel(net(), gradient_as_bucket_view=True, static_graph=True)
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    say("hooked", [round(loss, 3) for loss in losses_of(hooked)])
    say("same", everywhere_the_same(torch.cat([p.detach().flatten() for p in model.parameters()])))


@action
def callbacks_that_wait():
    """A future's callback waits for another operation, as PowerSGD's does."""
    def averaged_in_two(_, bucket):
        values = bucket.buffer()
        half = len(values) // 2

        def and_the_rest(first):
            first.value()
            dist.all_reduce(values[half:], async_op=True).get_future().wait()
            return values.div_(dist.get_world_size())
        return dist.all_reduce(values[:half], async_op=True).get_future().then(and_the_rest)

    plain, hooked = torch.nn.parallel.DistributedDataParallel(net()), torch.nn.parallel.DistributedDataParallel(net())
    hooked.register_comm_hook(None, averaged_in_two)
    say("same", [round(loss, 4) for loss in losses_of(plain)] == [round(loss, 4) for loss in losses_of(hooked)])

    if dist.get_rank() == 1:
        time.sleep(0.5)  # so that the other's futures are not over yet
    first, second = (dist.all_reduce(torch.ones(3), async_op=True).get_future() for _ in range(2))
    say("earlier", first.then(lambda _: second.wait()[0].tolist()).wait())


@action
def registered_buckets():
    """Trains as without, in buckets that are made anew after the first step, and whose memory every rank of the host reaches."""
    def wide():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4))

    def distributed(model):
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    plain, registered = distributed(wide()), distributed(wide())
    lockstep.c10d.register_buckets(registered)
    say("same", losses_of(plain) == losses_of(registered))
    expect_error(TypeError, lambda: lockstep.c10d.register_buckets(wide()))
    over_gloo = torch.nn.parallel.DistributedDataParallel(net(), process_group=dist.new_group(backend="gloo"))
    expect_error(ValueError, lambda: lockstep.c10d.register_buckets(over_gloo))
    from lockstep import core
    file = os.path.join(sys.argv[2], "timeline.json")
    core.start_timeline(file)
    losses_of(plain, 1)
    losses_of(registered, 1)
    core.stop_timeline()
    if dist.get_rank() == 0:
        say("ways", [one == "arena" for one in probe.algorithms_in(file, 1 << 16)])


@action
def zero():
    """ZeroRedundancyOptimizer, and join() for ranks with less data."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.parallel.DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    with Join([model, optimizer]):
        for step in range(3 + dist.get_rank()):
            x, y = batch(step, dist.get_rank())
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    say("parameters", round(sum(p.detach().abs().sum().item() for p in model.parameters()), 3))


@action
def fsdp():
    """FSDP2, and a checkpoint of its parts that is read again."""
    from torch.distributed.checkpoint import load, save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = net()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    say("losses", losses_of(model))
    folder = sys.argv[2]
    state = model.state_dict()
    save(state, checkpoint_id=folder)
    read = {name: torch.zeros_like(value) for name, value in state.items()}
    load(read, checkpoint_id=folder)
    say("read", all(torch.equal(read[name].full_tensor(), state[name].full_tensor()) for name in state))


@action
def tensor_parallel():
    """DTensor: a column-wise and a row-wise layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x, _ = batch(0, 0)
    out = model(x)
    out.sum().backward()
    say("out", round(out.sum().item(), 4))


@action
def pages():
    """What of tensors that Gloo does not: every second element; tensors of several sizes."""
    whole = torch.arange(6.0) + dist.get_rank()
    dist.all_reduce(whole[::2])
    say("strides", whole.tolist())
    outs = [torch.empty(rank + 1) for rank in range(dist.get_world_size())]
    dist.all_gather(outs, torch.full((dist.get_rank() + 1,), float(dist.get_rank())))
    say("sizes", [out.tolist() for out in outs])
    out = torch.empty(dist.get_rank() + 1)
    dist.reduce_scatter(out, [torch.ones(rank + 1) for rank in range(dist.get_world_size())])
    say("shares", out.tolist())


@action
def again():
    """A default group after another; and what a destroyed one says."""
    for _ in range(3):
        x = torch.ones(3)
        dist.all_reduce(x)
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        dist.destroy_process_group()
        begin()
    say("sum", x.tolist())


@action
def beside_horovods():
    import lockstep.torch as hvd

    hvd.init()
    x = hvd.allreduce(torch.ones(2), op=hvd.Sum)
    dist.all_reduce(x)
    dist.destroy_process_group()
    say("after", hvd.allreduce(x, op=hvd.Sum).tolist())


# ---- Something is wrong ----

@action
def kill():
    """The last rank is killed while the others train."""
    model = torch.nn.parallel.DistributedDataParallel(net())
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error(RuntimeError, lambda: losses_of(model, 1000))


@action
def stop():
    """The last rank stops; LOCKSTEP_TIMEOUT ends the others' wait."""
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    expect_error(lockstep.c10d.LockstepError, lambda: dist.all_reduce(torch.ones(4)))


@action
def mismatch():
    expect_error(lockstep.c10d.LockstepError, lambda: dist.all_reduce(torch.ones(3 + dist.get_rank())))


@action
def late():
    """A wait with a limit of its own; the group is closed by it, and says so to the others, at the latest when they call again."""
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        expect_error(lockstep.c10d.LockstepError, lambda: work.wait(datetime.timedelta(milliseconds=300)))
    else:
        time.sleep(4)
        expect_error(lockstep.c10d.LockstepError, lambda: [dist.all_reduce(torch.ones(4)) for _ in range(2)])


@action
def monitored():
    """Rank 0 names who does not come to a barrier."""
    if dist.get_rank() == 0:
        expect_error(RuntimeError, lambda: dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=300)))
    else:
        time.sleep(4)
    dist.barrier()


@action
def future():
    """A future of what fails has its error."""
    if dist.get_rank() == 0:
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        expect_error(RuntimeError, future.wait)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


@action
def ctrl_c():
    if dist.get_rank() == 0:
        try:
            say("waits")
            dist.all_reduce(torch.ones(1))
        except KeyboardInterrupt:
            say("interrupted")
            sys.exit(3)
    else:
        time.sleep(60)


@action
def leaves_with_work_under_way():
    dist.all_reduce(torch.ones(1000), async_op=True)
    if dist.get_rank() == 0:
        work = dist.irecv(torch.ones(1), 1)
        say("leaves", work.is_completed())
    dist.barrier()


@action
def wrong_use():
    for call in (lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX),
                 lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)),
                 lambda: dist.all_gather([torch.empty(1)], torch.ones(1)),
                 lambda: dist.broadcast(torch.ones(2).to_sparse(), 0),
                 lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3)),
                 lambda: dist.distributed_c10d._get_default_group().allreduce([torch.ones(1), torch.ones(1)])):
        expect_error((ValueError, RuntimeError), call)
    whole, size = torch.zeros(64), dist.get_world_size()
    for call in (lambda: dist.reduce_scatter(whole[:1], [torch.arange(16.0)] * size),
                 lambda: dist.all_to_all([whole[:1]] * size, [torch.arange(4.0)] * size),
                 lambda: dist.all_to_all_single(whole[:2 * size], torch.ones(2 * size, dtype=torch.float64)),
                 lambda: dist.all_to_all_single(whole[:size], torch.ones(size, 3)),
                 lambda: dist.all_gather([whole[:1]] * size, torch.ones(2))):
        expect_error(ValueError, call)
    assert not whole.any(), "what is refused has written nothing"
    x = torch.ones(1)
    dist.all_reduce(x)
    say("goes on", x.item())


@action
def wrong_devices():
    """A GPU's tensor and one that is elsewhere in one call: refused at once, and nothing is begun."""
    here, there = torch.ones(2), torch.empty(2 * dist.get_world_size(), device="cpu")
    for call in (lambda: dist.all_gather_into_tensor(there, here), lambda: dist.reduce_scatter_tensor(here, there),
                 lambda: dist.all_gather(list(there.chunk(dist.get_world_size())), here)):
        expect_error(ValueError, call)
    dist.all_reduce(here)
    say("after", here.tolist())


@action
def uneven():
    """Ranks that have sent and received differently often find each other's sparse tensors; what is joined is over by itself."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for other in range(1, size):
        if rank == 0:
            dist.send(torch.ones(1), other)
        elif rank == other:
            dist.recv(torch.ones(1), 0)
    x = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(x)
    with dist._coalescing_manager(async_ops=True) as joined:
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
    work = joined.works[0]
    while not work.is_completed():
        pass
    say("sum", x.to_dense().tolist())


@action
def patient():
    """A time-out that the program says is that of the job."""
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), dist.get_world_size() if dist.is_initialized() else 2,
                          os.environ["RANK"] == "0")
    for _ in range(3):
        dist.init_process_group("lockstep", store=store, rank=int(os.environ["RANK"]), world_size=2,
                                timeout=datetime.timedelta(hours=3))
        dist.barrier()
        dist.destroy_process_group()
    begin()
    say("waits for", os.environ["LOCKSTEP_TIMEOUT"])


@action
def cycles():
    """Groups again and again leave nothing behind."""
    def held():
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * os.sysconf("SC_PAGE_SIZE") // 1024

    count = int(sys.argv[2])
    for number in range(count):
        group = dist.new_group()
        x = torch.ones(100)
        dist.all_reduce(x, group=group)
        dist.all_reduce(x, group=group, async_op=True).get_future().wait()
        dist.destroy_process_group(group)
        if number == count // 10:
            before = held()
    after = held()
    say("held", *before, *after)


def spawned(rank, size, address):
    os.environ["MASTER_ADDR"] = address
    os.environ.setdefault("MASTER_PORT", "29555")
    begin(rank=rank, world_size=size)
    x = torch.ones(1) * rank
    dist.all_reduce(x)
    say("sum", x.item())
    dist.destroy_process_group()


def main():
    name = sys.argv[1]
    if name == "spawn":
        address = sys.argv[2]
        torch.multiprocessing.spawn(spawned, args=(3, address), nprocs=3)
        return
    if name == "spawn_by_file":
        place = pathlib.Path(sys.argv[2]).resolve()
        begin(init_method=f"file://{place}", rank=int(sys.argv[3]), world_size=2)
        x = torch.ones(1)
        dist.all_reduce(x)
        say("sum", x.item())
        return
    device.take()
    if os.environ.get("PROBE_BACKEND") == "gloo":
        dist.init_process_group("gloo")
    elif name != "beside_horovods":
        begin()
    else:
        import lockstep.torch as hvd

        hvd.init()
        begin()
    ACTIONS[name]()
    if os.environ.get("PROBE_BACKEND") == "gloo":
        os._exit(0)  # its threads now and then abort the interpreter's end
    device.tell_calls(say)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
