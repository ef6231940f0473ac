"""The operators of the emulated CANN, by family."""

from __future__ import annotations

from pytest_ascend.emulator.kernels import elementwise
from pytest_ascend.emulator.registry import Kernel

FAMILIES = (elementwise.family,)


def all_kernels() -> list[Kernel]:
    """Give all kernels, in a fixed order. Raises ValueError where an operator is declared twice."""
    kernels = [kernel for family in FAMILIES for kernel in family.kernels]
    names = [kernel.name for kernel in kernels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return kernels
