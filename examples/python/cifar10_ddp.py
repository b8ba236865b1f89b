"""ResNet-18 on CIFAR-10 with torch's DistributedDataParallel, over Lockstep: "lockstep" stands where "gloo" stood, and buckets are averaged
where they lie. The model's file is the one that the C++ program cifar10_resnet18 reads and writes.

  lockstep run -np 2 python3 examples/python/cifar10_ddp.py --synthetic
  torchrun --nproc-per-node 2 examples/python/cifar10_ddp.py --synthetic
"""
import argparse
import os
import pathlib
import time

import images
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import lockstep.c10d

MEAN, DEVIATION = (torch.tensor(values).view(3, 1, 1) for values in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Under torchvision's names, as for ImageNet: 1,000 outputs, of which CIFAR-10 uses ten."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for number, (inputs, outputs, stride) in enumerate([(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)], 1):
            self.add_module(f"layer{number}", nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1)))
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Augmented(torch.utils.data.Dataset):
    """Each image moved by up to 4 pixels and maybe mirrored."""

    def __init__(self, part):
        self.images, self.labels = part

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.nn.functional.pad(torch.from_numpy(self.images[index]), (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2,)).tolist()
        image = image[:, top:top + 32, left:left + 32]
        return (image.flip(2) if torch.rand(1) < 0.5 else image), int(self.labels[index])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_rank", "--local-rank", type=int, help="what torch.distributed.launch passes")
    parser.add_argument("--num_epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=256, help="images in each process's step [%(default)s]")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--random_seed", type=int, default=0)
    parser.add_argument("--model_dir", type=pathlib.Path, default="saved_models")
    parser.add_argument("--model_filename", default="resnet_distributed.pth")
    parser.add_argument("--resume", action="store_true", help="begin with the model that is there")
    images.add_flags(parser, "data/cifar-10-batches-bin")
    return parser.parse_args()


def accuracy(model, part):
    """Of one process alone: a model that evaluates talks to no other."""
    model.eval()
    with torch.no_grad():
        right = sum((model((torch.from_numpy(part[0][i:i + 128]) - MEAN) / DEVIATION).argmax(1)
                     == torch.from_numpy(part[1][i:i + 128])).sum().item() for i in range(0, len(part[1]), 128))
    model.train()
    return right / len(part[1])


def main():
    options = parse()
    dist.init_process_group("lockstep")
    local_rank = int(os.environ.get("LOCAL_RANK", options.local_rank or 0))
    torch.manual_seed(options.random_seed)
    file = options.model_dir / options.model_filename
    options.model_dir.mkdir(parents=True, exist_ok=True)

    model = DistributedDataParallel(ResNet18(), gradient_as_bucket_view=True)
    lockstep.c10d.register_buckets(model)  # averaged where they lie
    if options.resume:
        model.module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        dist.barrier()  # all have read it before rank 0 writes it anew
    train, test = images.cifar10(options)
    sampler = torch.utils.data.distributed.DistributedSampler(train[1], seed=options.random_seed)
    loader = torch.utils.data.DataLoader(Augmented(train), batch_size=options.batch_size, sampler=sampler)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9, weight_decay=1e-5)

    def evaluate_and_save(epoch):
        if local_rank == 0:
            right = accuracy(model.module, test)
            torch.save(model.module.state_dict(), file)
            print(f"epoch {epoch}: accuracy {right:.4f}, saved {file}", flush=True)

    for epoch in range(options.num_epochs):
        evaluate_and_save(epoch)
        sampler.set_epoch(epoch)
        begin = time.monotonic()
        for batch, labels in loader:
            optimizer.zero_grad()
            loss_of(model((batch - MEAN) / DEVIATION), labels).backward()
            optimizer.step()
        seconds = time.monotonic() - begin
        print(f"local rank {local_rank}, epoch {epoch}: {len(sampler) / seconds:.0f} images/s", flush=True)
    evaluate_and_save(options.num_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
