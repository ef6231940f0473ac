"""The generator of a device: seeding it, and keeping its state."""

from __future__ import annotations

from typing import Any

import torch


def seed(device: torch.device, number: int) -> None:
    """Seed the device's generator, and CPU's."""
    del device
    torch.manual_seed(number)


def state(device: torch.device) -> torch.Tensor:
    """Return the state of the device's generator."""
    found: torch.Tensor = _module(device).get_rng_state(*_which(device))
    return found


def restore(device: torch.device, kept: torch.Tensor) -> None:
    """Put the device's generator into a state that it was in."""
    _module(device).set_rng_state(kept, *_which(device))


def _module(device: torch.device) -> Any:
    return torch.random if device.type == "cpu" else getattr(torch, device.type)


def _which(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "cpu" else (device,)
