"""The CPU as the device under test: what the suites are developed on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU. Its work is done when the call returns, and nobody counts its memory."""

    kind: str = "cpu"
    label: str = "cpu"
    emulated: bool = False
    falls_back: bool = False

    def torch_device(self) -> torch.device:
        """Return the device as torch knows it."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Do nothing: everything is done already."""

    def events(self) -> None:
        """Return nothing: the host's clock is the CPU's."""

    def chip(self) -> str:
        """Return the architecture."""
        return platform.machine()

    def allocated_bytes(self) -> int:
        """Return 0: torch does not count the CPU's memory."""
        return 0

    def reset_peak_memory(self) -> None:
        """Do nothing: see :meth:`peak_memory_bytes`."""

    def peak_memory_bytes(self) -> int:
        """Return 0: torch does not count the CPU's memory."""
        return 0
