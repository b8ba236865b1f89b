"""Horovod over Gloo, as training_step.cpp and with the same models. It needs Horovod's own launcher: started with
--ranks it is that, and prints what the ranks print; each rank has a core, as under ours. Between hosts BENCH_HOSTS has them, and
BENCH_WRAPPER words that put a rank on its core."""
import os
import subprocess
import sys


def launch(program):
    """Starts `program` on all ranks, with the words that follow --ranks N."""
    at = sys.argv.index("--ranks")
    ranks = sys.argv[at + 1]
    words = sys.argv[1:at] + sys.argv[at + 2:]
    horovodrun = os.path.join(os.path.dirname(sys.executable), "horovodrun")
    hosts = os.environ.get("BENCH_HOSTS")
    where = ["--network-interfaces", "cable", "-H", hosts] if hosts else ["--network-interfaces", "lo"]
    command = [horovodrun, "--gloo", "-np", ranks, *where, *os.environ.get("BENCH_WRAPPER", "").split(), sys.executable, program,
               *words]
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    for line in ended.stdout.splitlines():
        print(line.partition("<stdout>:")[2] or line)
    return ended.returncode


def pin():
    """To be called before anything starts a thread, so that Horovod's, and torch's, stay on the rank's core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["HOROVOD_LOCAL_RANK"]) % len(cores)]})


def be_launcher_or_pinned(program):
    """What a program does before all else that horovodrun may start: with --ranks it is the launcher, and ends; as a rank it is pinned."""
    if "--ranks" in sys.argv:
        sys.exit(launch(program))
    if "HOROVOD_LOCAL_RANK" in os.environ:
        pin()


def train():
    import horovod.torch as hvd
    import torch

    import agreement
    import stepping

    options = stepping.parser(__doc__).parse_args()
    hvd.init()
    net, inputs, targets = stepping.start(options, hvd.rank())
    kind, arguments = stepping.optimizer_of(options)
    optimizer = kind(net.parameters(), **arguments)
    if not options.without_averaging:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    mine = stepping.measure(options, net, optimizer, inputs, targets)
    mine += agreement.compare(options, net, hvd.size(), lambda tensor: hvd.broadcast_(tensor, 0, name="parameters"))
    everybody = hvd.allgather(torch.tensor([mine], dtype=torch.float64), name="figures")
    if hvd.rank() == 0:
        stepping.report(options, len(inputs), everybody)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    if "--ranks" in sys.argv:
        sys.exit(launch(__file__))
    if not os.environ.get("BENCH_UNPINNED"):
        pin()
    sys.exit(train())
