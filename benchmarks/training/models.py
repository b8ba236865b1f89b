"""The models of models.json for peers in Python, and each rank's batch: a model is the same on all ranks, a batch is the
rank's own."""
import torch
from torch import nn

from model_list import MODELS


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


def resnet18(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
        channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*layers)


LAYERS = {"Conv2d": nn.Conv2d, "Flatten": nn.Flatten, "Linear": nn.Linear, "MaxPool2d": nn.MaxPool2d, "ReLU": nn.ReLU,
          "ResNet18": resnet18}


def net_of(model):
    """The same parameters each time."""
    torch.manual_seed(1)
    return nn.Sequential(*(LAYERS[kind](*numbers) for kind, *numbers in MODELS[model]["layers"]))


def batch_of(model, rank, device):
    """(inputs, targets) of `rank`, the same each time."""
    shape, classes = MODELS[model]["input"], MODELS[model]["classes"]
    torch.manual_seed(1000 + rank)
    return torch.randn(shape).to(device), torch.randint(classes, shape[:1]).to(device)
