"""Work between host and device: copies, input pipelines, augmentation; and optimizers, which launch many kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from pytest_ascend.device import npu
from pytest_ascend.performance.timing import Call

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of float32 numbers to or from the device, with pinned memory or not."""

    size_bytes: int
    to_device: bool
    pinned: bool

    @property
    def name(self) -> str:
        size = f"{self.size_bytes // MIB}MiB" if self.size_bytes >= MIB else f"{self.size_bytes // 1024}KiB"
        return f"{'to' if self.to_device else 'from'}-device-{size}-{'pinned' if self.pinned else 'pageable'}"

    def make(self, device: torch.device) -> Call:
        host = torch.ones(self.size_bytes // 4)
        if self.pinned and device.type != "cpu":
            host = host.pin_memory()
        there = host.to(device, copy=True)
        return (lambda: there.copy_(host)) if self.to_device else (lambda: host.copy_(there))


_COPIES = itertools.product((4 * 1024, MIB, 16 * MIB), (True, False), (True, False))
COPIES = {each.name: each for each in itertools.starmap(Copy, _COPIES)}

Make: TypeAlias = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class OptimizerVariant:
    """An optimizer in one of its implementations; ``fused`` makes one that only an NPU has."""

    usual: Make
    fused: Make | None = None

    def make(self, device: torch.device) -> Call:
        parameters: list[Tensor] = [torch.nn.Parameter(torch.ones(128, 128, device=device)) for _ in range(64)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        # The CPU, for comparison, does the same work by torch's implementation.
        chosen = self.fused if self.fused and device.type != "cpu" else self.usual
        return chosen(parameters).step


def _ways(optimizer: Callable[..., torch.optim.Optimizer], fused: str) -> dict[str, OptimizerVariant]:
    """Return an optimizer parameter by parameter, with torch's foreach, and as one operator of torch_npu over all."""
    name, foreach = optimizer.__name__.lower(), partial(optimizer, lr=1e-3, foreach=True)
    return {
        f"{name}-loop": OptimizerVariant(partial(optimizer, lr=1e-3, foreach=False)),
        f"{name}-foreach": OptimizerVariant(foreach),
        f"{name}-fused": OptimizerVariant(foreach, lambda parameters: npu.optimizer(fused)(parameters, lr=1e-3)),
    }


OPTIMIZERS = {**_ways(torch.optim.SGD, "NpuFusedSGD"), **_ways(torch.optim.AdamW, "NpuFusedAdamW")}


#: Settings of a DataLoader: workers, whether memory is pinned, batches that a worker fetches ahead, and their size.
PIPELINES = ((0, False, 2, 16), (0, False, 2, 64), (2, False, 2, 16), (2, False, 4, 64), (2, True, 2, 64))


def samples_to(
    device: torch.device, samples: int, *, workers: int, pinned: bool, ahead: int, batch: int
) -> Iterator[Tensor]:
    data, factor = TensorDataset(torch.ones(samples, 3, 64, 64)), ahead if workers else None
    for (images,) in DataLoader(data, batch, num_workers=workers, pin_memory=pinned, prefetch_factor=factor):
        yield images.to(device, non_blocking=pinned)


def augmentation(batch: int) -> Callable[[torch.device], Call]:
    """Prepare flip, crop and resize, brightness, blur and normalisation of a batch of images on the device."""

    def prepared(device: torch.device) -> Call:
        images = torch.rand(batch, 3, 128, 128).to(device)
        channels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        mean, std = (torch.tensor(each).view(3, 1, 1).to(device) for each in channels)
        kernel = torch.full((3, 1, 3, 3), 1 / 9).to(device)

        def call() -> Tensor:
            x = images.flip(-1)[..., 8:120, 8:120]
            x = F.interpolate(x, size=(96, 96), mode="bilinear", align_corners=False)
            x = (x * 1.1).clamp(0, 1)
            x = F.conv2d(x, kernel, padding=1, groups=3)
            return (x - mean) / std

        return call

    return prepared
