"""How the small models are trained: optimizers, batches and modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LRScheduler, StepLR

from pytest_ascend.device import npu
from pytest_ascend.parity.training import Batch, Recipe
from pytest_ascend.run import inputs

from ..models.architectures import Sizes, VisionTransformer
from ..models.computation import images

CLASSES, IMAGE, BATCH = 10, 32, 8


class Block(nn.Module):
    """A residual block of two convolutions: (N, into, H, W) to (N, out, H / stride, W / stride)."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Images (N, 3, 32, 32) to logits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block1 = Block(16, 16, 1)
        self.block2 = Block(16, 32, 2)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.bn(self.conv(x))))
        return self.fc(self.block2(self.block1(x)).mean((2, 3)))  # type: ignore[no-any-return]


SMALL_VIT = Sizes(image=IMAGE, patch=8, width=64, heads=4, layers=2, mlp_width=128, classes=CLASSES)
MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "small-resnet": SmallResNet,
    # GELU as CANN computes it: only the training itself is judged here.
    "small-vit": partial(VisionTransformer, SMALL_VIT, activation=partial(nn.GELU, "tanh")),
}


def make(name: str, **settings: Any) -> nn.Module:
    """Return the model ``name`` with the same weights on every machine, float32 on the CPU."""
    model = MODELS[name](**settings)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            stream, shape = f"training/{name}/{key}", tuple(parameter.shape)
            if parameter.dim() > 1:
                scale = 1.0 / math.sqrt(parameter[0].numel()) if key.endswith("weight") else 0.25
                parameter.copy_(inputs.normal(stream, shape, std=scale))
            else:
                low, high = (0.75, 1.25) if key.endswith("weight") else (-0.1, 0.1)
                parameter.copy_(inputs.uniform(stream, shape, low=low, high=high))
    return model


Make: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]

STEPS, BATCHES = 12, 2

HALVES = {"autocast-bfloat16": torch.bfloat16, "autocast-float16": torch.float16}
MODES: Mapping[str, torch.dtype | None] = {"float32": None, **HALVES}

#: So large that a gradient of pure rounding makes no full step, and that its place inside or outside the root shows.
EPS = 1e-3

SGD_SETTINGS: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
ADAM_SETTINGS: dict[str, Any] = {"lr": 1e-3, "eps": EPS, "weight_decay": 0.05}


class OptimizerRecipe(NamedTuple):
    """A torch optimizer, its device-only variant, and its learning rate schedule."""

    torch: Make
    device: Make | None = None
    schedule: Callable[[Optimizer], LRScheduler] | None = None


def _fused(kind: type[Optimizer], **settings: Any) -> OptimizerRecipe:
    name = f"NpuFused{kind.__name__}"
    return OptimizerRecipe(partial(kind, **settings), lambda parameters: npu.optimizer(name)(parameters, **settings))


OPTIMIZERS: Mapping[str, OptimizerRecipe] = {
    "sgd-steplr": OptimizerRecipe(partial(SGD, **SGD_SETTINGS), None, partial(StepLR, step_size=8, gamma=0.5)),
    "adamw": OptimizerRecipe(partial(AdamW, **ADAM_SETTINGS)),
    "adamw-loop": OptimizerRecipe(partial(AdamW, **ADAM_SETTINGS, foreach=False)),
    "fused-sgd": _fused(SGD, **SGD_SETTINGS),
    "fused-adam": _fused(Adam, **ADAM_SETTINGS),
    "fused-adamw": _fused(AdamW, **ADAM_SETTINGS),
    "fused-rmsprop": _fused(RMSprop, lr=1e-3, eps=EPS),
    "fused-adadelta": _fused(Adadelta, lr=0.5, eps=EPS),
}


def cross_entropy(output: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(output if output.dtype is torch.float64 else output.float(), batch.target)


def recipe(optimizer: str, mode: str = "float32", *, on_device: bool = False, steps: int = STEPS) -> Recipe:
    usual, of_device, schedule = OPTIMIZERS[optimizer]
    return Recipe(
        batches=batches(),
        loss=cross_entropy,
        optimizer=(of_device or usual) if on_device else usual,
        schedule=schedule,
        steps=steps,
        autocast=MODES[mode],
    )


def batches() -> tuple[Batch, ...]:
    found = []
    for name in (f"training/batch {number}" for number in range(BATCHES)):
        targets = inputs.integers(f"{name}/targets", (BATCH,), low=0, high=CLASSES)
        found.append(Batch((images(BATCH, IMAGE, name, 4),), {}, targets))
    return tuple(found)
