"""The models of models.h for peers in Python, and each rank's batch: a model is the same on all ranks, a batch is the
rank's own."""
import torch
from torch import nn


def convnet():
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, (64, 1, 28, 28), 10


def mlp():
    net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048),
                        nn.ReLU(), nn.Linear(2048, 10))
    return net, (64, 784), 10


def wide_mlp():
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    return net, (64, 1024), 1024


class BasicBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                  nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = None
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.main(x) + (self.shortcut(x) if self.shortcut else x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
        channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), (32, 3, 32, 32), 10


MODELS = {"convnet": convnet, "mlp": mlp, "wide_mlp": wide_mlp, "resnet18": resnet18}


def net_of(model):
    """The same parameters each time."""
    torch.manual_seed(1)
    return MODELS[model]()[0]


def batch_of(model, rank, device):
    """(inputs, targets) of `rank`, the same each time."""
    _, shape, classes = MODELS[model]()
    torch.manual_seed(1000 + rank)
    return torch.randn(shape).to(device), torch.randint(classes, shape[:1]).to(device)
