"""ResNet50 and vision transformers, frozen: the goldens of the first and of ViT-B/16 must stay valid.

K. He et al., "Deep residual learning for image recognition", CVPR 2016, with a stage's stride in its 3x3 convolution,
as usual today; A. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021: twelve pre-norm encoder layers over
196 patches and a class token. Parameters have the names and shapes of torchvision's ``resnet50`` and ``vit_b_16``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

#: Width of the 3x3 convolutions, number of blocks and stride of the first block, by stage.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
#: Ratio of a block's output width to that of its 3x3 convolution.
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
        self.downsample = None
        if channels != wide:
            self.downsample = nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        return self.relu(y)  # type: ignore[no-any-return]


class ResNet50(nn.Module):
    """Map images (N, 3, H, W) to logits (N, classes)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = 64
        for number, (width, blocks, stride) in enumerate(STAGES, start=1):
            first = Bottleneck(channels, width, stride)
            rest = (Bottleneck(width * EXPANSION, width, 1) for _ in range(blocks - 1))
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
            channels = width * EXPANSION
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


#: The epsilon of every LayerNorm, as in the authors' code.
EPS = 1e-6
Activation: TypeAlias = Callable[[], nn.Module]


class Sizes(NamedTuple):
    """A vision transformer's image and patches (pixels on each side), heads, layers and classes."""

    image: int = 224
    patch: int = 16
    width: int = 768
    heads: int = 12
    layers: int = 12
    mlp_width: int = 3072
    classes: int = 1000


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(0.02 * torch.randn(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = projected.reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    def __init__(self, sizes: Sizes, activation: Activation) -> None:
        super().__init__()
        width, wide = sizes.width, sizes.mlp_width
        self.ln_1 = nn.LayerNorm(width, eps=EPS)
        self.self_attention = SelfAttention(width, sizes.heads)
        self.ln_2 = nn.LayerNorm(width, eps=EPS)
        # Dropout has no parameters, but its position affects the numbers of later layers.
        self.mlp = nn.Sequential(
            nn.Linear(width, wide), activation(), nn.Dropout(0.0), nn.Linear(wide, width), nn.Dropout(0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Position embedding, layers and a last normalisation: (N, tokens, width) to the same."""

    def __init__(self, sizes: Sizes, activation: Activation) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, (sizes.image // sizes.patch) ** 2 + 1, sizes.width))
        layers = ((f"encoder_layer_{index}", EncoderLayer(sizes, activation)) for index in range(sizes.layers))
        self.layers = nn.Sequential(OrderedDict(layers))
        self.ln = nn.LayerNorm(sizes.width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x + self.pos_embedding))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Map images (N, 3, image, image) to logits (N, classes); by default ViT-B/16."""

    def __init__(self, sizes: Sizes = Sizes(), activation: Activation = nn.GELU) -> None:  # noqa: B008 - a tuple
        super().__init__()
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, sizes.width))
        self.conv_proj = nn.Conv2d(3, sizes.width, sizes.patch, sizes.patch)
        self.encoder = Encoder(sizes, activation)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(sizes.width, sizes.classes)))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        return self.heads(self.encoder(tokens)[:, 0])  # type: ignore[no-any-return]
