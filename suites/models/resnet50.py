"""ResNet50, frozen: what goldens were made of must not change under them.

K. He et al., "Deep residual learning for image recognition", CVPR 2016, with the stride of a stage in its 3x3
convolution, as is usual today. Parameters have the names and shapes of torchvision's ``resnet50``.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

#: Width of the 3x3 convolutions, number of blocks and stride of the first block, by stage.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
#: How many times wider a block's output is than its 3x3 convolution.
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution beside a shortcut: (N, channels, H, W) to (N, 4 width, H / stride, W / stride)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(channels, wide, stride) if channels != wide else None

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        out: Tensor = self.relu(y)
        return out


class ResNet50(nn.Module):
    """Images (N, 3, H, W) to the logits (N, classes) of their class."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = 64
        for number, (width, blocks, stride) in enumerate(STAGES, start=1):
            self.add_module(f"layer{number}", _stage(channels, width, blocks, stride))
            channels = width * EXPANSION
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def _projection(channels: int, wide: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    rest = (Bottleneck(width * EXPANSION, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(OrderedDict((str(index), block) for index, block in enumerate((first, *rest))))
