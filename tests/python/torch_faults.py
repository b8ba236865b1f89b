"""A program for lockstep.torch in which something is wrong, as its first word says; what rank R does says `probe R ...`.

    lockstep run -np 2 python torch_faults.py ACTION [WORD ...]
"""
import functools
import gc
import json
import os
import resource
import signal
import sys
import threading
import time

import torch

import device
import lockstep.torch as hvd
import probe
from lockstep import core
from probe import ACTIONS, action

device.take()


def say(*words):
    probe.tell(hvd.rank() if hvd.is_initialized() else "-", *words)


expect_error = functools.partial(probe.expect_error, say)


def linear(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 2)


def optimizer_of(net, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), named_parameters=net.named_parameters(), **options)


@action
def kill():
    """Rank 1 is killed while the others train."""
    net = linear()
    optimizer = optimizer_of(net)
    hvd.allreduce(torch.ones(1), name="begin")
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)

    def train():
        for _ in range(1000):
            net(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    expect_error(hvd.HorovodInternalError, train)


@action
def no_memory_for_a_result():
    """Rank 0's program has none when it is asked for it."""
    kept = torch.ones(4)
    request = core.request(0, "gathered", core.NAMED_ALL_GATHER, dtype=core.F32, shapes=((),))

    def make(size):
        if hvd.rank() == 0:
            raise MemoryError(f"{size} bytes are too many")
        kept.resize_(size // 4)
        return kept.data_ptr()

    given = torch.ones(4)
    work = core.submit_request(request, [given.data_ptr()], [4], (given, kept), None, make)
    try:
        work.wait()
    except hvd.HorovodInternalError as error:
        say(error, "|", repr(error.__cause__))
    else:
        raise SystemExit("there was no error")


@action
def sets_that_overlap():
    """More operations than a GPU's engine has slots for, in sets each of which some rank comes to before another."""
    mine = [one for one in [hvd.add_process_set(ranks) for ranks in ([0, 2, 3], [1, 2, 3], [0, 1, 3])] if one.included()]
    if hvd.rank() % 2:
        mine.reverse()
    for step in range(5):
        tensors = {one: [torch.full((4,), float(hvd.rank())) for _ in range(40)] for one in mine}
        handles = [hvd.grouped_allreduce_async_(of_set, op=hvd.Sum, name=f"sums{step}", process_set=one) for one, of_set in tensors.items()]
        for handle in handles:
            hvd.synchronize(handle)
        assert all(tensor.tolist() == [sum(one.ranks)] * 4 for one, of_set in tensors.items() for tensor in of_set)
    say("right")


@action
def leave():
    """Rank 1 shuts down while the others wait for it."""
    if hvd.rank() == 1:
        return
    expect_error(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="loss"))


@action
def late():
    """Rank 1 does not come in time."""
    if hvd.rank() == 1:
        time.sleep(4)
    expect_error(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="loss"))


@action
def wait_for_ever():
    """Rank 0 waits for what rank 1 never does, until it is interrupted."""
    say("waits")
    if hvd.rank() == 1:
        time.sleep(100)
    hvd.allreduce(torch.ones(1), name="loss")


@action
def parameters_that_differ():
    net = linear() if hvd.rank() == 0 else torch.nn.Sequential(linear(), torch.nn.Linear(2, 2))
    optimizer = optimizer_of(net)
    net(torch.ones(1, 4)).sum().backward()
    expect_error(hvd.HorovodInternalError, optimizer.step)


@action
def dropped_tensors():
    """Tensors that the program lets go of while they are under way."""
    handles = []
    for i in range(50):
        handles.append(hvd.allreduce_async(torch.full((1000,), float(i)), op=hvd.Sum, name=f"x{i}"))
        gc.collect(0)
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(i * hvd.size()).all()
    say("right")


@action
def dropped_handles():
    """Handles that nobody synchronizes; the interpreter ends with them."""
    for i in range(10):
        hvd.allreduce_async(torch.ones(10), name=f"x{i}")
    say("ends")


@action
def end_under_way():
    """Rank 0's interpreter ends with work under way for which rank 1 comes late."""
    if hvd.rank() == 1:
        time.sleep(0.5)
    hvd.allreduce_async(torch.ones(10), name="x")
    say("ends")


@action
def exception_in_a_hook():
    net = linear()
    optimizer = optimizer_of(net)

    def fail(_):
        raise ValueError("the hook's own mistake")
    net.weight.register_hook(fail)
    expect_error(ValueError, lambda: net(torch.ones(1, 4)).sum().backward())


@action
def step_without_backward():
    net = linear()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    optimizer_of(net).step()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    say("right")


@action
def timeline():
    """Of some calls, in the folder that follows; and what is refused."""
    place = os.path.join(sys.argv[2], "timeline.json")
    expect_error(ValueError, hvd.stop_timeline)
    expect_error(ValueError, lambda: hvd.start_timeline(os.path.join(place, "in", "no", "folder")))
    hvd.allreduce(torch.ones(1), name="before")
    for calls in (1, 3):
        hvd.start_timeline(place, mark_cycles=True)
        expect_error(ValueError, lambda: hvd.start_timeline(place))
        for call in range(calls):
            hvd.allreduce(torch.ones(10), name=f"call {call}")
        hvd.stop_timeline()
        events = json.load(open(place))["traceEvents"]
        for rank in range(hvd.size()):
            found = [event for event in events if event["ph"] == "X" and event["pid"] == rank and event["name"] == "all_reduce"
                     and event["args"]["bytes"] == 40]
            assert len(found) == calls, (rank, calls, found)
        hvd.barrier()
    say("right")


@action
def threads():
    """Several threads call at once, in any order."""
    def work(first):
        for i in range(first, 200, 4):
            assert hvd.allreduce(torch.full((100,), float(i)), op=hvd.Sum, name=f"x{i}").eq(i * hvd.size()).all()
    all_threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    say("right")


@action
def workers():
    """DataLoader's workers are forked after init()."""
    data = torch.utils.data.TensorDataset(torch.arange(40.0).view(20, 2))
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler, num_workers=2)
    total = sum(hvd.allreduce(batch.sum(), op=hvd.Sum, name="sum").item() for batch, in loader)
    assert total == sum(range(40)), total
    say("right")


@action
def several_worlds():
    """init() after shutdown(), again and again, with a process set and an optimizer in each."""
    def held():
        pages = int(open("/proc/self/statm").read().split()[1])
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task")), pages * 4
    for i in range(int(sys.argv[2])):
        if i == 10:
            first = held()
        if i:
            hvd.init()
        net = linear()
        optimizer = optimizer_of(net)
        one = hvd.add_process_set([1])
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        assert not one.included() or hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=one).item() == 1
        del optimizer, net
        gc.collect()
        hvd.shutdown()
    hvd.init()
    say("held", *first, "and", *held())


@action
def init_twice():
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    expect_error(ValueError, lambda: hvd.add_process_set([0, 99]))  # the real one ends all ranks
    hvd.shutdown()
    hvd.shutdown()
    for call in (hvd.rank, lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.add_process_set([0])):
        try:
            call()
            raise SystemExit("there was no error")
        except ValueError:
            pass
    hvd.init()
    say("right")


@action
def gradients_while_under_way():
    """Gradients are added up over several backwards, and kept where zero_grad() sets them to zero."""
    for set_to_none in (True, False):
        net = linear()
        optimizer = optimizer_of(net)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            net(torch.full((1, 4), float(hvd.rank() + 1))).sum().backward()
            optimizer.synchronize()
            average = sum(range(1, hvd.size() + 1)) / hvd.size()
            assert net.weight.grad.eq(average).all(), net.weight.grad
            with optimizer.skip_synchronize():
                optimizer.step()
    say("right")


@action
def elastic():
    """A collective fails in the middle of training, which goes on in the next world, from the last commit."""
    net = linear()
    optimizer = optimizer_of(net)
    data = list(range(24))
    sampler = hvd.elastic.ElasticSampler(data, shuffle=False)
    state = hvd.elastic.TorchState(model=net, optimizer=optimizer, sampler=sampler, batch=0, worlds=0)
    seen, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=state.sampler)
        for index, batch in enumerate(loader):
            optimizer.zero_grad()
            net(batch.float().view(-1, 1).expand(-1, 4)).mean().backward()
            optimizer.step()
            if state.batch == 1 and not resets:
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="differs")
            seen.extend(batch.tolist())
            state.sampler.record_batch(index, 4)
            state.batch += 1
            state.commit()
        return state.batch

    batches = train(state)
    every = sorted(sum(hvd.allgather_object(seen), []))
    assert every == data, every
    assert resets == [hvd.size()] and batches == 3, (resets, batches)
    weights = hvd.allgather(net.weight.detach().view(1, -1))
    assert weights.eq(weights[0]).all()
    say("right")


@action
def ranks_that_come_and_go():
    """Rank 1 dies in its first life in the middle of training, which goes on without it, and then with its next life."""
    net = linear()
    optimizer = optimizer_of(net)
    state = hvd.elastic.TorchState(model=net, optimizer=optimizer, batch=0)
    sizes = []
    is_second_life = os.environ["LOCKSTEP_INCARNATION"] != "0"

    @hvd.elastic.run
    def train(state):
        sizes.append(hvd.size())
        while state.batch < 400 and not (state.batch >= 20 and sizes[-1] == 3 and (len(sizes) > 1 or is_second_life)):
            optimizer.zero_grad()
            net(torch.full((1, 4), float(hvd.rank() + 1))).sum().backward()
            if state.batch == 5 and os.environ["RANK"] == "1" and not is_second_life:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            state.batch += 1
            state.commit()
            time.sleep(0.02)
        return state.batch

    batches = train(state)
    weights = hvd.allgather(net.weight.detach().view(1, -1))
    assert weights.eq(weights[0]).all(), weights
    assert hvd.size() == 3 and 20 <= batches < 400, (sizes, batches)
    say("right", sizes[0], sizes[-1])


@action
def begins_alone():
    """Rank 0 begins while nobody else is there; a rank that comes later trains with it."""
    assert hvd.size() == (1 if os.environ["RANK"] == "0" else 2)
    net = linear()
    optimizer = optimizer_of(net)
    state = hvd.elastic.TorchState(model=net, optimizer=optimizer, batch=0, together=0)

    @hvd.elastic.run
    def train(state):
        while state.together < 10 and state.batch < 1000:
            optimizer.zero_grad()
            net(torch.full((1, 4), float(hvd.rank() + 1))).sum().backward()
            optimizer.step()
            state.batch += 1
            state.together += hvd.size() == 2
            state.commit()
            time.sleep(0.02)

    train(state)
    weights = hvd.allgather(net.weight.detach().view(1, -1))
    assert len(weights) == 2 and weights.eq(weights[0]).all(), weights
    say("right")


@action
def samplers():
    """All deal out rank 0's epoch, without what anybody has done of it; and what Horovod has saved is understood."""
    data = range(24)
    sampler = hvd.elastic.ElasticSampler(data)
    state = hvd.elastic.TorchState(sampler=sampler)
    if hvd.rank() == 0:
        sampler.set_epoch(5)
    sampler.record_indices([1, 2, 3] if hvd.rank() == 0 else [7])  # the others': of an epoch that is over
    state.sync()
    assert sampler.epoch == 5
    dealt = sorted(sum(hvd.allgather_object(list(sampler)), []))
    assert set(dealt) == set(data) - {1, 2, 3} and len(dealt) - len(set(dealt)) < hvd.size(), dealt
    whole = hvd.elastic.ElasticSampler(data)
    whole.set_epoch(5)
    first = sum(map(list, zip(*hvd.allgather_object(list(whole)))), [])[:8]
    sampler.load_state_dict({"epoch": 5, "processed_num": 8})
    assert sampler.processed_indices == set(first)
    say("right")


@action
def parts_to_others():
    """alltoall() of fewer rows than there are, and its gradient; of more than there are it is refused."""
    x = torch.arange(6.0).view(-1, 1).repeat(1, 2).requires_grad_()
    received, rows = hvd.alltoall(x, splits=[2] + [1] * (hvd.size() - 1))
    assert rows.tolist() == [2 if hvd.rank() == 0 else 1] * hvd.size(), rows
    received.sum().backward()
    sent = 1 + hvd.size()
    assert x.grad.tolist() == [[1.0, 1.0]] * sent + [[0.0, 0.0]] * (6 - sent), x.grad
    try:
        hvd.alltoall(x, splits=[100] * hvd.size())
    except ValueError as error:
        assert "of at most 6 rows together" in str(error)
    else:
        raise SystemExit("more rows than there are went out")
    say("right")


@action
def schedulers():
    """A scheduler of the learning rate that was there before, and groups that a program holds, stay the optimizer's on all ranks."""
    net = linear()
    plain = torch.optim.SGD(net.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    scheduler, held = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5), plain.param_groups[0]
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    torch.manual_seed(hvd.rank())
    for _ in range(3):
        net.zero_grad()
        net(torch.randn(2, 4)).sum().backward()
        net.weight.grad = net.weight.grad.clone()  # programs filter gradients like that
        optimizer.step()
        scheduler.step()
    assert held is optimizer.param_groups[0]
    rates = hvd.allgather_object(optimizer.param_groups[0]["lr"])
    assert rates == [0.1 / 8] * hvd.size(), rates
    weights = hvd.allgather(net.weight.detach().view(1, -1))
    assert weights.eq(weights[0]).all(), weights
    say("right")


@action
def after_a_failure():
    """What a failed step leaves behind is forgotten when a state is loaded."""
    net = linear()
    optimizer = optimizer_of(net)
    state = optimizer.state_dict()
    net(torch.ones(1, 4)).sum().backward()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert hvd.allgather(net.weight.detach().view(1, -1)).eq(net.weight.detach().view(1, -1)).all()
    say("right")


@action
def odd_tensors():
    z = torch.tensor([1 + 2j, 3 - 1j])
    gathered = hvd.allgather(z.conj())
    assert torch.equal(gathered[:2], z.conj().resolve_conj()), gathered
    written = torch.ones(2, 2, requires_grad=True)
    for of in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        of(written).mul_(2).sum().backward()
    evens = hvd.add_process_set([0])
    if evens.included():
        hvd.barrier(process_set=evens)
        hvd.allreduce(torch.ones(1), process_set=evens)
    hvd.barrier()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    x = torch.full((3,), 2.0, dtype=torch.float64)
    handle = hvd.allreduce_async_(x, op=hvd.Sum, name="x", prescale_factor=2.0)
    try:
        hvd.synchronize(hvd.allreduce_async_(x, op=hvd.Sum, name="x", prescale_factor=2.0))
        factor = 4.0 * hvd.size()  # the first one was over
    except ValueError:
        factor = 2.0
    hvd.synchronize(handle)
    assert x[0].item() in (2.0 * factor * hvd.size() / (hvd.size() if factor > 2 else 1), 4.0 * hvd.size()), x
    moved = torch.full((1 << 16,), float(hvd.rank() + 1))
    handle = hvd.broadcast_async_(moved, 1)
    moved.data = torch.zeros_like(moved)  # where it was stays until the operation is over
    assert hvd.synchronize(handle) is moved and moved.eq(2).all()
    for wrong in (lambda: hvd.allreduce(torch.ones(1), name="a\0b"), lambda: optimizer_of(linear(), backward_passes_per_step=0)):
        expect_error(ValueError, wrong)
    say("right")


def algorithms_of(calls):
    """Of the large all_reduces that happen in calls()."""
    file = os.path.join(sys.argv[2], "timeline.json")
    hvd.start_timeline(file)
    calls()
    hvd.stop_timeline()
    if hvd.rank() != 0:
        return None
    return probe.algorithms_in(file, 1 << 18)


@action
def registered_memory():
    x, y = torch.ones(1 << 18), torch.ones(1 << 18)
    backwards = core.new_set(range(hvd.size() - 1, -1, -1))

    def calls():
        with hvd.register_memory(x):
            hvd.allreduce_(x, op=hvd.Sum, name="x")
            core.begin("all_reduce", backwards, x.data_ptr(), x.data_ptr(), x.numel(), core.F32, core.SUM).wait()
            hvd.allreduce_(y, op=hvd.Sum, name="y")
        hvd.allreduce_(x, op=hvd.Sum, name="x")
    found = algorithms_of(calls)
    assert found is None or [one == "arena" for one in found] == [True, True, False, False], found
    assert x[0].item() == hvd.size() ** 3 and torch.equal(x, x[0].expand_as(x)) and y[0].item() == hvd.size()
    kept = hvd.register_memory(x)
    for wrong in (x, x[::2], torch.ones(0), torch.ones(3).to_sparse()):
        expect_error(ValueError, lambda: hvd.register_memory(wrong))
    kept.close()
    kept.close()
    hvd.register_memory(x)  # and let go of at once
    for _ in range(40):  # more than the arena has room for, of memory that nobody else has
        hvd.register_memory(torch.ones(1 << 19))
    with hvd.register_memory(x):
        hvd.shutdown()
    hvd.init()
    with hvd.register_memory(x):
        assert hvd.allreduce(x, op=hvd.Sum)[-1].item() == hvd.size() ** 4
    say("right")


@action
def gradients_in_the_arena():
    net = torch.nn.Linear(512, 512)
    optimizer = optimizer_of(net)

    def step():
        net(torch.ones(1, 512)).sum().backward()
        optimizer.step()
    found = algorithms_of(step)
    assert found is None or found == ["arena"], found
    say("right")


@action
def freed_memory():
    optimizer_of(torch.nn.Linear(2048, 2048))  # of 16 MiB

    def pages():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            several = [torch.empty(4 << 20).fill_(1.0) for _ in range(3)]
            del several
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    pages()
    say("pages", "few" if pages() < 1000 else "many")


@action
def batch_norm():
    """As one process that has the samples of all."""
    torch.manual_seed(0)
    x = torch.randn(4 * hvd.size(), 3, 5)
    weights = torch.randn(4 * hvd.size(), 3, 5)
    whole, parts = torch.nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    a, b = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
    (whole(a) * weights).sum().backward()
    made = parts(b)
    (made * weights[mine]).sum().backward()
    assert torch.allclose(made, whole.eval()(x)[mine], atol=3) and torch.allclose(parts.running_var, whole.running_var, atol=1e-5)
    assert torch.allclose(b.grad, a.grad[mine], atol=1e-4), (b.grad, a.grad[mine])
    assert torch.allclose(hvd.allreduce(parts.weight.grad, op=hvd.Sum), whole.weight.grad, atol=1e-3)
    far = torch.randn(4 * hvd.size(), 3, generator=torch.Generator().manual_seed(1)) + 3000
    assert torch.allclose(hvd.SyncBatchNorm(3)(far[mine]), torch.nn.BatchNorm1d(3)(far)[mine], atol=1e-2)
    say("right")


def main():
    hvd.init()
    torch.set_num_threads(1)
    ACTIONS[sys.argv[1]]()


@action
def adasum():
    """By name and by an optimizer: what is alike stays what it is, what is orthogonal is added, ranks end alike."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.equal(hvd.allreduce(torch.tensor([3, 4], dtype=dtype), op=hvd.Adasum), torch.tensor([3, 4], dtype=dtype))
        assert torch.equal(hvd.allreduce_(torch.eye(size, dtype=dtype)[rank], op=hvd.Adasum), torch.ones(size, dtype=dtype))
    mine, theirs = torch.arange(1.0, 5) * (rank + 1), [torch.arange(1.0, 5), torch.arange(1.0, 5) * 2]
    a, b = theirs
    expected = (1 - a.dot(b) / (2 * a.dot(a))) * a + (1 - a.dot(b) / (2 * b.dot(b))) * b
    assert torch.allclose(hvd.grouped_allreduce([mine, torch.ones(2)], op=hvd.Adasum)[0], expected)
    expect_error(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum, name="whole numbers"))
    net = linear()
    before = net.weight.detach().clone()
    optimizer = optimizer_of(net, op=hvd.Adasum)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (net(torch.eye(4)[rank:rank + 2]) - 1).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    assert losses[-1] < losses[0] and not torch.equal(before, net.weight)
    everywhere = hvd.allgather(net.weight.detach().reshape(1, -1))
    assert torch.equal(everywhere[0], everywhere[1])
    say("right")


@action
def gradients_are_there_at_once():
    """An optimizer's state can be broadcast before the first step, and gradients then be looked at, as with Horovod."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor([1, 3], dtype=torch.int32), requires_grad=False)
            self.b = torch.nn.Parameter(torch.rand(4))

    net = Net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.001, weight_decay=1e-6, momentum=0.9, nesterov=True),
                                         named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert net.a.grad is None
    assert torch.equal(net.b.grad, hvd.broadcast(net.b.grad, root_rank=0))
    say("right")


if __name__ == "__main__":
    main()
