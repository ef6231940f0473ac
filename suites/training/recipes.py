"""How the small models are trained: optimizers, batches and ways of computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LRScheduler, StepLR

from pytest_ascend.device import npu
from pytest_ascend.parity.training import Batch, Recipe

from .models import images, targets

Make: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]

STEPS, BATCHES = 20, 2

MODES: Mapping[str, torch.dtype | None] = {
    "float32": None,
    "autocast-bfloat16": torch.bfloat16,
    "autocast-float16": torch.float16,
}

#: Large enough that a gradient of nothing but rounding makes no whole step, and that its place under the root shows.
EPS = 1e-3

SGD_SETTINGS: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
ADAM_SETTINGS: dict[str, Any] = {"lr": 1e-3, "eps": EPS, "weight_decay": 0.05}


@dataclass(frozen=True, slots=True)
class Optimizing:
    """An optimizer of torch, the setting by which only a device computes it, and the schedule of its rate."""

    torch: Make
    device: Make | None = None
    schedule: Callable[[Optimizer], LRScheduler] | None = None


def _fused(name: str, settings: Mapping[str, Any]) -> Make:
    return lambda parameters: npu.optimizer(name)(parameters, **settings)


def _halving(optimizer: Optimizer) -> LRScheduler:
    return StepLR(optimizer, step_size=8, gamma=0.5)


OPTIMIZERS: Mapping[str, Optimizing] = {
    "sgd-steplr": Optimizing(partial(SGD, **SGD_SETTINGS), schedule=_halving),
    "adamw": Optimizing(partial(AdamW, **ADAM_SETTINGS)),
    "adamw-loop": Optimizing(partial(AdamW, **ADAM_SETTINGS, foreach=False)),
    "fused-sgd": Optimizing(partial(SGD, **SGD_SETTINGS), _fused("NpuFusedSGD", SGD_SETTINGS)),
    "fused-adam": Optimizing(partial(Adam, **ADAM_SETTINGS), _fused("NpuFusedAdam", ADAM_SETTINGS)),
    "fused-adamw": Optimizing(partial(AdamW, **ADAM_SETTINGS), _fused("NpuFusedAdamW", ADAM_SETTINGS)),
    "fused-rmsprop": Optimizing(
        partial(RMSprop, lr=1e-3, eps=EPS), _fused("NpuFusedRMSprop", {"lr": 1e-3, "eps": EPS})
    ),
    "fused-adadelta": Optimizing(
        partial(Adadelta, lr=0.5, eps=EPS), _fused("NpuFusedAdadelta", {"lr": 0.5, "eps": EPS})
    ),
}


def cross_entropy(output: Tensor, batch: Batch) -> Tensor:
    """Return the cross entropy of logits, in float32 at least."""
    return F.cross_entropy(output if output.dtype is torch.float64 else output.float(), batch.target)


def recipe(optimizer: str, mode: str = "float32", *, on_device: bool = False, steps: int = STEPS) -> Recipe:
    """Return the training by its names; ``on_device`` takes the optimizer that only a device has."""
    chosen = OPTIMIZERS[optimizer]
    return Recipe(
        batches=batches(),
        loss=cross_entropy,
        optimizer=(chosen.device or chosen.torch) if on_device else chosen.torch,
        schedule=chosen.schedule,
        steps=steps,
        autocast=MODES[mode],
    )


def batches() -> tuple[Batch, ...]:
    """Return the batches of a training: images, with their classes as the target."""
    return tuple(Batch((images(f"batch {number}"),), {}, targets(f"batch {number}")) for number in range(BATCHES))
