"""Horovod over Gloo, as training_step.cpp and with the same models. It needs Horovod's own launcher: started with
--ranks it is that, and prints what the ranks print; each rank has a core, as under ours."""
import os
import subprocess
import sys


def launch(program):
    """Starts `program` on all ranks, with the words that follow --ranks N."""
    at = sys.argv.index("--ranks")
    ranks = sys.argv[at + 1]
    words = sys.argv[1:at] + sys.argv[at + 2:]
    horovodrun = os.path.join(os.path.dirname(sys.executable), "horovodrun")
    command = [horovodrun, "--gloo", "-np", ranks, "--network-interfaces", "lo", sys.executable, program, *words]
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    for line in ended.stdout.splitlines():
        print(line.partition("<stdout>:")[2] or line)
    return ended.returncode


def train():
    import horovod.torch as hvd
    import stepping

    options = stepping.parser(__doc__).parse_args()
    hvd.init()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[hvd.local_rank() % len(cores)]})
    net, inputs, targets = stepping.start(options)
    kind, arguments = stepping.OPTIMIZERS[options.optimizer]
    optimizer = hvd.DistributedOptimizer(kind(net.parameters(), **arguments), named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    average = hvd.allreduce(stepping.measure(options, net, optimizer, inputs, targets), name="times")
    if hvd.rank() == 0:
        stepping.report(average, len(inputs), hvd.size())
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(launch(__file__) if "--ranks" in sys.argv else train())
