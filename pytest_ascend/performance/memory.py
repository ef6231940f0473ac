"""What a piece of work takes of the device's memory: at its peak, in the end, step by step, and on other devices."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_ascend.device import Device

#: Steps before memory is looked at: optimizers make their state in the first, caches fill.
WARM_STEPS = 3
#: Allocators round up to this; less is nothing (torch's caching allocators: 512 bytes).
SMALLEST_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """``by_step`` is what tensors held after each step, ``peak_bytes`` the most within the steps.

    ``elsewhere`` is what was taken meanwhile on other devices of the kind, by their index.
    """

    peak_bytes: int
    by_step: tuple[int, ...]
    elsewhere: dict[int, int] = field(default_factory=dict)

    @property
    def steady_bytes(self) -> int:
        """What is held after the last step."""
        return self.by_step[-1]

    @property
    def leaked_bytes_per_step(self) -> float:
        """The growth over the steps, if there was any."""
        return leak(self.by_step)


def leak(by_step: Sequence[int]) -> float:
    """Return the bytes that stay behind a step, 0 where memory only swings.

    Work that leaks never comes back below what it held before: the least of the later half of the steps is above the
    most of the earlier. A tensor kept in every tenth of 40 steps raises the level four times.
    """
    half = len(by_step) // 2
    earlier, later = by_step[:half], by_step[half:]
    if not earlier or min(later) < max(earlier) + SMALLEST_BYTES:
        return 0.0
    return (by_step[-1] - by_step[0]) / max(1, len(by_step) - 1)


def use_of(step: Callable[[], object], device: Device, *, steps: int) -> MemoryUse:
    """Run ``step`` so often after WARM_STEPS more, and give what it took."""
    for _ in range(WARM_STEPS):
        step()
    device.synchronize()
    gc.collect()
    others = _others(device)
    device.reset_peak_memory()
    by_step = []
    for _ in range(steps):
        step()
        device.synchronize()
        by_step.append(device.allocated_bytes())
    grown = {index: now - others[index] for index, now in _others(device).items() if now > others[index]}
    return MemoryUse(peak_bytes=device.peak_memory_bytes(), by_step=tuple(by_step), elsewhere=grown)


def _others(device: Device) -> dict[int, int]:
    """Return what this process holds on the other devices of the kind."""
    import torch

    module, own = getattr(torch, device.kind), device.torch_device().index or 0
    if device.kind == "cpu":
        return {}
    return {index: int(module.memory_allocated(index)) for index in range(module.device_count()) if index != own}
