"""What programs for Horovod ask of its torch module, each as a case with one answer (cases.py).

    lockstep run -np 2 python torch_cases.py lockstep.torch OUT     # OUT.RANK: a line of JSON for each case

device.py says where tensors are.
"""
import torch

import device
from cases import CASES, LEFT_OUT, add_cases_of_wrong_use, add_common_cases, answer_all, case, in_a_process_set, joined

device.take()
# What a made-up GPU has not.
_BEYOND_FAKE = ("sparse allreduce", "a sparse tensor", "optimizer state is the root's", "an embedding with sparse gradients",
                "an embedding with sparse gradients made dense")
FLOATS = [torch.float32, torch.float64, torch.float16]
TYPES = [torch.uint8, torch.int8, torch.int32, torch.int64, *FLOATS]
SHAPES = [(), (1,), (17,), (3, 4), (2, 0, 3), (5, 2, 3)]


def short(dtype):
    return str(dtype).replace("torch.", "")


def numbers(shape, dtype, seed):
    """Small whole numbers, which have the same sums in all types."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 10, shape, generator=generator, device="cpu").to(torch.empty(0).device, dtype)


# ---- allreduce ----

for dtype in TYPES:
    for shape in SHAPES:
        for op in ("Sum", "Min", "Max", "Product"):
            if op in ("Min", "Max", "Product") and shape not in ((17,), ()):
                continue
            @case(f"allreduce {op} {short(dtype)} {list(shape)}")
            def _(hvd, dtype=dtype, shape=shape, op=op):
                return hvd.allreduce(numbers(shape, dtype, hvd.rank()) % 4, name="x", op=getattr(hvd, op))
    @case(f"allreduce average {short(dtype)}")
    def _(hvd, dtype=dtype):
        return hvd.allreduce(numbers((9,), dtype, hvd.rank()), name="x")
    @case(f"allreduce in place {short(dtype)}")
    def _(hvd, dtype=dtype):
        x = numbers((9,), dtype, hvd.rank())
        made = hvd.allreduce_(x, op=hvd.Sum, name="x")
        return [made is x or made.data_ptr() == x.data_ptr(), x]
    for prescale, postscale in ((0.5, 1.0), (1.0, 0.25), (3.0, 0.5)):
        @case(f"allreduce scaled {prescale} {postscale} {short(dtype)}")
        def _(hvd, dtype=dtype, prescale=prescale, postscale=postscale):
            return hvd.allreduce(numbers((9,), dtype, hvd.rank()), op=hvd.Sum, name="x", prescale_factor=prescale,
                                 postscale_factor=postscale)
    @case(f"grouped allreduce {short(dtype)}")
    def _(hvd, dtype=dtype):
        return hvd.grouped_allreduce([numbers(shape, dtype, hvd.rank()) for shape in ((3,), (2, 2), (1,))], op=hvd.Sum, name="x")
    @case(f"allgather {short(dtype)}")
    def _(hvd, dtype=dtype):
        return hvd.allgather(numbers((hvd.rank() + 1, 3), dtype, hvd.rank()), name="x")
    @case(f"broadcast {short(dtype)}")
    def _(hvd, dtype=dtype):
        return [hvd.broadcast(numbers((4, 2), dtype, hvd.rank()), root, name=f"x{root}") for root in range(hvd.size())]
    @case(f"alltoall {short(dtype)}")
    def _(hvd, dtype=dtype):
        return hvd.alltoall(numbers((hvd.size() * 2, 3), dtype, hvd.rank()), name="x")
    @case(f"reducescatter {short(dtype)}")
    def _(hvd, dtype=dtype):
        return hvd.reducescatter(numbers((5, 2), dtype, hvd.rank()), op=hvd.Sum, name="x")


@case("allreduce average=False")
def _(hvd):
    return hvd.allreduce(torch.ones(3), average=False)


@case("allreduce average and op")
def _(hvd):
    return hvd.allreduce(torch.ones(3), average=False, op=hvd.Sum)


@case("allreduce names left out")
def _(hvd):
    return [hvd.allreduce(torch.ones(2) * (hvd.rank() + i), op=hvd.Sum) for i in range(3)]


@case("allreduce in another order on each rank")
def _(hvd):
    order = range(6) if hvd.rank() % 2 == 0 else reversed(range(6))
    handles = {i: hvd.allreduce_async(torch.full((3,), float(i + hvd.rank())), op=hvd.Sum, name=f"o{i}") for i in order}
    return [hvd.synchronize(handles[i]) for i in range(6)]


@case("allreduce_async poll and synchronize")
def _(hvd):
    handle = hvd.allreduce_async(torch.ones(4), op=hvd.Sum, name="x")
    while not hvd.poll(handle):
        pass
    return hvd.synchronize(handle)


@case("allreduce_async_ in place")
def _(hvd):
    x = torch.ones(4) * hvd.rank()
    hvd.synchronize(hvd.allreduce_async_(x, op=hvd.Sum, name="x"))
    return x


for compression in ("none", "fp16"):
    @case(f"allreduce compression {compression}")
    def _(hvd, compression=compression):
        return hvd.allreduce(torch.arange(5.0) + hvd.rank(), name="x", compression=getattr(hvd.Compression, compression))


@case("compression fp16 of f64 and integers")
def _(hvd):
    found = []
    for x in (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int32)):
        small, context = hvd.Compression.fp16.compress(x)
        found += [small, hvd.Compression.fp16.decompress(small, context)]
    return found


@case("grouped allreduce in place")
def _(hvd):
    xs = [torch.ones(3) * hvd.rank(), torch.ones(2) * 2]
    hvd.grouped_allreduce_(xs, op=hvd.Average, name="x")
    return xs


@case("grouped allreduce of two types")
def _(hvd):
    return hvd.grouped_allreduce([torch.ones(3), torch.ones(3, dtype=torch.float64)], op=hvd.Sum, name="x")


@case("grouped allgather")
def _(hvd):
    return hvd.grouped_allgather([torch.ones(hvd.rank() + 1, 2), torch.ones(2) * hvd.rank()], name="x")


@case("grouped reducescatter")
def _(hvd):
    return hvd.grouped_reducescatter([torch.ones(4, 2) * hvd.rank(), torch.ones(5)], op=hvd.Sum, name="x")


@case("sparse allreduce")
def _(hvd):
    x = torch.sparse_coo_tensor([[0, 2]], [[1.0, 2.0], [3.0, 4.0 + hvd.rank()]], (4, 2))
    return hvd.sparse_allreduce_async(x, name="x", op=hvd.Average)().to_dense()


# ---- gradients ----

def gradient(hvd, function, x, weights):
    x = x.clone().requires_grad_()
    made = function(x)
    (made * weights(made)).sum().backward()
    return x.grad


def ramp(made):
    return torch.arange(1.0, made.numel() + 1).view(made.shape)


for op in ("Sum", "Average"):
    @case(f"gradient of allreduce {op}")
    def _(hvd, op=op):
        return gradient(hvd, lambda x: hvd.allreduce(x, op=getattr(hvd, op), name="x"), torch.ones(3), lambda m: ramp(m) * (hvd.rank() + 1))
    @case(f"gradient of reducescatter {op}")
    def _(hvd, op=op):
        return gradient(hvd, lambda x: hvd.reducescatter(x, op=getattr(hvd, op), name="x"), torch.ones(4, 2), lambda m: ramp(m) * (hvd.rank() + 1))


@case("gradient of grouped allreduce")
def _(hvd):
    x = torch.ones(3, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="x")
    (a.sum() * (hvd.rank() + 1) + b.sum()).backward()
    return [x.grad, y.grad]


@case("gradient of allgather")
def _(hvd):
    return gradient(hvd, lambda x: hvd.allgather(x, name="x"), torch.ones(hvd.rank() + 1, 2), lambda m: ramp(m) * (hvd.rank() + 1))


@case("gradient of broadcast")
def _(hvd):
    return gradient(hvd, lambda x: hvd.broadcast(x, 1, name="x"), torch.ones(3), lambda m: ramp(m) * (hvd.rank() + 1))


@case("gradient of alltoall")
def _(hvd):
    splits = torch.tensor([i + 1 for i in range(hvd.size())])
    rows = int(splits.sum())
    return gradient(hvd, lambda x: hvd.alltoall(x, splits, name="x")[0], torch.ones(rows, 2), lambda m: ramp(m) * (hvd.rank() + 1))


# ---- the rest ----

add_common_cases()


@case("alltoall with splits")
def _(hvd):
    splits = torch.tensor([(hvd.rank() + i) % 3 for i in range(hvd.size())])
    return list(hvd.alltoall(torch.arange(float(splits.sum())) + 10 * hvd.rank(), splits, name="x"))


@case("alltoall of rows that do not divide")
def _(hvd):
    return hvd.alltoall(torch.ones(hvd.size() * 2 + 1), name="x")


@case("alltoall with wrong splits")
def _(hvd):
    return hvd.alltoall(torch.ones(4), torch.tensor([1] * hvd.size() + [1]), name="x")


@case("allgather of scalars")
def _(hvd):
    return hvd.allgather(torch.tensor(float(hvd.rank())), name="x")


@case("broadcast in place")
def _(hvd):
    x = torch.full((3,), float(hvd.rank()))
    hvd.broadcast_(x, hvd.size() - 1, name="x")
    return x


@case("join")
def _(hvd):
    return joined(hvd, torch.ones)


@case("process set")
def _(hvd):
    return in_a_process_set(hvd, torch.ones)


@case("process set of the whole world")
def _(hvd):
    return [hvd.global_process_set.ranks, hvd.global_process_set.size(), hvd.remove_process_set(hvd.global_process_set)]


@case("barrier")
def _(hvd):
    return hvd.barrier()


# ---- wrong use ----

add_cases_of_wrong_use(torch.ones, torch.float32, torch.float64)


@case("a name twice")
def _(hvd):
    refusal = None
    for rank in range(hvd.size()):  # who alone has submitted it, so that it is under way
        def submit(name=f"twice{rank}"):
            return hvd.allreduce_async(torch.ones(1000), name=name, op=hvd.Sum)
        if rank == hvd.rank():
            first = submit()
            try:
                hvd.synchronize(submit())
            except Exception as error:  # noqa: BLE001
                refusal = error
            hvd.barrier()
            hvd.synchronize(first)
        else:
            hvd.barrier()
            hvd.synchronize(submit())
    raise refusal


@case("a handle that is not known")
def _(hvd):
    return hvd.synchronize(-1)


@case("a sparse tensor")
def _(hvd):
    return hvd.allreduce(torch.sparse_coo_tensor([[0]], [1.0], (3,)), name="sparse")


@case("a root that is not there")
def _(hvd):
    return hvd.broadcast(torch.ones(2), 99, name="root")


# ---- training ----

def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(3, 1))


def trained(hvd, make, steps=4, batches=1, sgd=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), step=None, model=None):
    """What its parameters are after some steps on samples that differ between ranks."""
    net = model or model_of(hvd.rank())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = make(sgd(net.parameters()), net)
    torch.manual_seed(100 + hvd.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(batches):
            net(torch.randn(4, 6)).pow(2).mean().backward()
        (step or (lambda one, _: one.step()))(optimizer, net)
    return [parameter.detach().clone() for parameter in net.parameters()]


def plain(hvd, **options):
    return lambda optimizer, net: hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters(), **options)


@case("training")
def _(hvd):
    return trained(hvd, plain(hvd))


@case("training without names")
def _(hvd):
    return trained(hvd, lambda optimizer, net: hvd.DistributedOptimizer(optimizer))


@case("training with Adam")
def _(hvd):
    return trained(hvd, plain(hvd), sgd=lambda p: torch.optim.Adam(p, lr=0.01))


@case("training with op Sum")
def _(hvd):
    return trained(hvd, plain(hvd, op=hvd.Sum))


@case("training with fp16")
def _(hvd):
    return trained(hvd, plain(hvd, compression=hvd.Compression.fp16))


@case("training with several backwards")
def _(hvd):
    return trained(hvd, plain(hvd, backward_passes_per_step=3), batches=3)


@case("training with a predivide factor")
def _(hvd):
    return trained(hvd, plain(hvd, gradient_predivide_factor=2.0))


@case("training in two groups")
def _(hvd):
    return trained(hvd, plain(hvd, groups=2))


@case("training in lists")
def _(hvd):
    return trained(hvd, lambda optimizer, net: hvd.DistributedOptimizer(
        optimizer, named_parameters=net.named_parameters(), groups=[list(net[0].parameters()), list(net[2].parameters())]))


@case("training with clipped gradients")
def _(hvd):
    def step(optimizer, net):
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    return trained(hvd, plain(hvd), step=step)


@case("training with a parameter that one rank does not use")
def _(hvd):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.one, self.other = torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)

        def forward(self, x):
            return self.one(x) if hvd.rank() == 0 else self.one(x) + self.other(x)
    return trained(hvd, plain(hvd), model=Net())


@case("training with a parameter that is not trained")
def _(hvd):
    net = model_of(1)
    net[0].weight.requires_grad_(False)
    return trained(hvd, plain(hvd), model=net)


@case("optimizer state is the root's")
def _(hvd):
    net = model_of(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.5)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter) * (hvd.rank() + 1)
    if hvd.rank() == 0:
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state_dict()
    return [state["param_groups"][0]["lr"], [state["state"][key]["momentum_buffer"] for key in sorted(state["state"])]]


@case("an embedding with sparse gradients")
def _(hvd):
    torch.manual_seed(0)
    net = torch.nn.Embedding(6, 3, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    net(torch.tensor([hvd.rank(), 2])).sum().backward()
    optimizer.step()
    return net.weight.detach()


@case("an embedding with sparse gradients made dense")
def _(hvd):
    torch.manual_seed(0)
    net = torch.nn.Embedding(6, 3, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), named_parameters=net.named_parameters(),
                                         sparse_as_dense=True)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    net(torch.tensor([hvd.rank(), 2])).sum().backward()
    optimizer.step()
    return net.weight.detach()


@case("zero_grad between backward and step")
def _(hvd):
    net = model_of(0)
    optimizer = plain(hvd)(torch.optim.SGD(net.parameters(), lr=0.1), net)
    net(torch.ones(2, 6)).sum().backward()
    try:
        optimizer.zero_grad()
    finally:
        optimizer.step()


@case("more backwards than there may be")
def _(hvd):
    net = model_of(0)
    optimizer = plain(hvd)(torch.optim.SGD(net.parameters(), lr=0.1), net)
    net(torch.ones(2, 6)).sum().backward()
    try:
        net(torch.ones(2, 6)).sum().backward()
    finally:
        optimizer.step()


@case("a predivide factor with op Sum")
def _(hvd):
    return plain(hvd, gradient_predivide_factor=2.0, op=hvd.Sum)(torch.optim.SGD(model_of(0).parameters(), lr=1), model_of(0))


@case("names that are given twice")
def _(hvd):
    net = model_of(0)
    return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1), named_parameters=[("a", p) for p in net.parameters()])


@case("names of some parameters alone")
def _(hvd):
    net = model_of(0)
    return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1), named_parameters=list(net[0].named_parameters()))


@case("state of LBFGS")
def _(hvd):
    return hvd.broadcast_optimizer_state(torch.optim.LBFGS(model_of(0).parameters()), root_rank=0)


@case("the class of the optimizer")
def _(hvd):
    net = model_of(0)
    optimizer = plain(hvd)(torch.optim.SGD(net.parameters(), lr=1), net)
    return [isinstance(optimizer, torch.optim.SGD), type(optimizer).__name__]


@case("a scheduler of the learning rate")
def _(hvd):
    net = model_of(0)
    optimizer = plain(hvd)(torch.optim.SGD(net.parameters(), lr=1.0), net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    net(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    scheduler.step()
    return optimizer.param_groups[0]["lr"]


# ---- answers ----

def plain_tensor(value):
    if torch.is_tensor(value):
        return {"dtype": short(value.dtype), "shape": list(value.shape), "values": value.double().flatten().tolist()}
    return None


if __name__ == "__main__":
    for beyond in _BEYOND_FAKE if device.IS_FAKE else ():
        CASES[beyond] = lambda hvd: LEFT_OUT
    answer_all(plain_tensor, lambda hvd: hvd.barrier())
    device.tell_calls()
