"""Problem sizes: realistic on hardware, small where the host computes, whose times do not matter."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.device import Device
from pytest_ascend.performance.timing import shares_the_host
from pytest_ascend.run.comparing import free_bytes


@dataclass(frozen=True, slots=True)
class Sizes:
    """Batch size, image side in pixels, encoder layers of a ViT, context tokens of a decoder.

    ``steps`` of training reveal a leak; once a batch size takes longer than ``patience_s``, larger ones are skipped.
    """

    batch: int
    pixels: int
    layers: int
    context: int
    steps: int
    patience_s: float


HARDWARE = Sizes(batch=32, pixels=224, layers=12, context=2048, steps=20, patience_s=2.0)
HOST = Sizes(batch=1, pixels=48, layers=1, context=128, steps=12, patience_s=0.5)


def sizes_of(device: Device) -> Sizes:
    return HOST if shares_the_host(device) else HARDWARE


def preparations(device: Device, needed_bytes: int, wanted: int) -> int:
    """Return how often to prepare work: ``wanted``, or what half the memory holds; or raise NotImplementedError."""
    if device.torch_device().type == "cpu":  # the host has no limit
        return wanted
    free = free_bytes(device.torch_device())
    if needed_bytes > free:
        raise NotImplementedError(
            f"{device.label} has {free / 2**20:,.0f} MiB free, and this benchmark needs {needed_bytes / 2**20:,.0f}:"
            " the memory of an emulated device is set by --ascend-emulate=memory"
        )
    return max(1, min(wanted, int(free / 2 // max(needed_bytes, 1))))
