"""A torch training that goes on when ranks die, by hvd.elastic of the module that its argument names, horovod.torch or lockstep.torch.
Rank 0 says how many samples all ranks have seen so far, after each step. script/soak elastic --beside kills its ranks."""
import importlib
import sys

import torch

hvd = importlib.import_module(sys.argv[1])
WIDTH, BATCH, STEPS_BETWEEN_COMMITS = 2048, 192, 10

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters())
x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))


@hvd.elastic.run
def train(state):
    while True:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        state.step += 1
        state.samples += BATCH * hvd.size()
        if state.step % STEPS_BETWEEN_COMMITS == 0:
            state.commit()
        if hvd.rank() == 0:
            print(f"took step {state.step} after {state.samples} samples", flush=True)


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, samples=0))
