"""MNIST with torch in Horovod's eight steps. On the real Horovod it does the same: the import line is all that differs.

  lockstep run -np 2 python3 examples/python/torch_mnist.py --data-dir FOLDER
  lockstep run -np 2 python3 examples/python/torch_mnist.py --synthetic
"""
import argparse

import images
import torch
import torch.nn.functional as F
from torch import nn

import lockstep.torch as hvd  # import horovod.torch as hvd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.view(-1, 320)))
        return F.log_softmax(self.fc2(x), dim=1)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images in each process's step [%(default)s]")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01, help="of one process [%(default)s]")
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as halves")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    parser.add_argument("--model", metavar="FILE", help="write the model there after each epoch")
    images.add_flags(parser, "data/mnist")
    return parser.parse_args()


def dataset(part):
    return torch.utils.data.TensorDataset(torch.from_numpy(part[0]).unsqueeze(1), torch.from_numpy(part[1]))


def test(model, loader, device):
    model.eval()
    right = loss = 0.0
    with torch.no_grad():
        for x, y in loader:
            y = y.to(device)
            output = model(x.to(device))
            loss += F.nll_loss(output, y, reduction="sum").item()
            right += (output.argmax(1) == y).sum().item()
    model.train()
    samples = len(loader.sampler)
    # 8. Figures are averages over all processes.
    loss, right = hvd.allreduce(torch.tensor([loss / samples, right / samples]), name="test").tolist()
    return loss, right


def main():
    options = parse()
    # 1. Join the other processes.
    hvd.init()
    torch.manual_seed(options.seed)
    # 2. Each process has a device of its own, by its local rank.
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")

    # 3. Each has its share of the samples, another one in each epoch.
    train_set, test_set = (dataset(part) for part in images.mnist(options))
    sampler = torch.utils.data.distributed.DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(train_set, batch_size=options.batch_size, sampler=sampler)
    test_sampler = torch.utils.data.distributed.DistributedSampler(test_set, num_replicas=hvd.size(), rank=hvd.rank())
    test_loader = torch.utils.data.DataLoader(test_set, batch_size=1000, sampler=test_sampler)

    # 4. As many processes take as many samples in a step: the learning rate grows with them, but for Adasum.
    model = Net().to(device)
    rate = options.lr * (1 if options.use_adasum else hvd.size())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=options.momentum)

    # 5. All begin with rank 0's weights and its optimizer's state.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    # 6. Gradients are averaged over all processes before the optimizer steps.
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average)

    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.nll_loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        loss, right = test(model, test_loader, device)
        # 7. One of them speaks and saves for all.
        if hvd.rank() == 0:
            print(f"epoch {epoch}/{options.epochs}: test loss {loss:.4f}, accuracy {right:.4f}", flush=True)
            if options.model:
                torch.save(model.state_dict(), options.model)


if __name__ == "__main__":
    main()
