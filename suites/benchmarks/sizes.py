"""How large the work is: as in production on hardware, and small where the host computes, whose times nobody buys."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.device import Device
from pytest_ascend.performance.timing import shares_the_host


@dataclass(frozen=True, slots=True)
class Sizes:
    """Samples in a batch, pixels of an image's side, encoder layers of a ViT, tokens of a decoder's context."""

    batch: int
    pixels: int
    layers: int
    context: int


HARDWARE = Sizes(batch=32, pixels=224, layers=12, context=2048)
HOST = Sizes(batch=1, pixels=64, layers=2, context=128)


def sizes_of(device: Device) -> Sizes:
    """Return the sizes for a device."""
    return HOST if shares_the_host(device) else HARDWARE
