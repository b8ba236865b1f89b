"""A program in Python for the soaks (job.py says what it has to say): trains until a rank is hurt.

    victim.py torch|c10d|tensorflow BUILD

torch: DistributedOptimizer, and collectives by name; c10d: torch.distributed over Lockstep; tensorflow: a tape in a function.
"""
import os
import pathlib
import re
import sys
import time

root = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "python"))
os.environ["LOCKSTEP_C_LIBRARY"] = str(pathlib.Path(sys.argv[2]).parent / "lib" / "liblockstep_c.so")
os.environ["LOCKSTEP_INIT_TIMEOUT"] = "30s"  # interpreters of one job may begin seconds apart
os.environ.update(TORCH_CPP_LOG_LEVEL="ERROR", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


def torch():
    """(one step, what has to stay as it is after a failure)"""
    import torch

    import lockstep.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01), named_parameters=net.named_parameters())

    def once():
        optimizer.zero_grad()
        loss = net(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        hvd.allreduce(loss.detach(), name="loss")

    return once, lambda: [parameter.detach().clone() for parameter in net.parameters()], torch.equal


def c10d():
    import torch
    import torch.distributed as dist

    import lockstep.c10d  # noqa: F401

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("lockstep")
    values = torch.ones(10_000)

    def once():
        works = [dist.all_reduce(torch.ones(100), async_op=True), dist.all_reduce(values.clone(), async_op=True)]
        for work in works:
            work.wait()
        dist.barrier()

    return once, lambda: [values.clone()], torch.equal


def tensorflow():
    import numpy
    import tensorflow as tf

    import lockstep.tensorflow as hvd

    hvd.init()
    weights = tf.Variable(tf.ones([64, 64]))

    @tf.function
    def once():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(tf.ones([8, 64]), weights))
        weights.assign_sub(0.01 * hvd.DistributedGradientTape(tape).gradient(loss, weights))

    return once, lambda: [weights.numpy()], numpy.array_equal


def say(text):
    os.write(1, f"soak rank={os.environ['RANK']} {text}\n".encode())


def of_error(error):
    """(code, rank, text): TensorFlow's errors have a text alone."""
    text = str(error).replace("\n", " ")
    if hasattr(error, "code") and isinstance(error.code, str):
        return error.code, error.rank if error.rank is not None else -1, text
    if "Lockstep: " not in text:
        raise error
    text = text.split("Lockstep: ", 1)[1].split(": ", 1)[1]  # behind the tensor's name
    late = re.search(r"rank (\d+),? did not arrive within|was submitted by .*, but not by rank (\d+),", text)
    named = late or re.search(r"rank (\d+) (?:\(pid|did not|ended|left|died)", text)
    return "timeout" if late else "peer_lost", int(next(filter(None, named.groups()))) if named else -1, text


def main():
    once, state, equal = {"torch": torch, "c10d": c10d, "tensorflow": tensorflow}[sys.argv[1]]()
    once()
    say(f"pid={os.getpid()} loops")
    calls = 0
    try:
        while True:
            began = time.monotonic_ns()
            once()
            calls += 1
    except Exception as error:
        failed = time.monotonic_ns()
        code, rank, text = of_error(error)
        say(f"code={code} peer={rank} began_ns={began} failed_ns={failed} calls={calls} text={text}")
    if os.environ.get("SOAK_STAYS"):
        before = state()
        sys.stdin.readline()
        whole = all(map(equal, before, state()))
        say("unharmed" if whole else "harmed: somebody wrote into memory after the failure")
    sys.stdout.flush()
    os._exit(1)


main()
