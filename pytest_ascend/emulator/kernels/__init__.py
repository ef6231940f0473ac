"""The operators of the emulated CANN, by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module

from pytest_ascend.emulator.registry import Family, Kernel
from pytest_ascend.emulator.rows import family_of

#: Families whose rows need only the functions of another family's module.
MODULE_OF = {"linear_algebra": "linear", "loss": "random"}
#: All families, in the order in which the compiled entry points number their operators.
_MODULES = (
    *("activation", "atb", "convolution", "detection", "elementwise", "attention", "inference", "linear"),
    *("linear_algebra", "loss", "mc2", "movement", "normalization", "optimizer", "overflow", "pooling"),
    *("quantization", "random", "recurrent", "reduction", "routing", "serving"),
)
FAMILIES: tuple[Family, ...] = tuple(
    family_of(name, import_module(f"{__name__}.{MODULE_OF.get(name, name)}")) for name in _MODULES
)


def all_kernels() -> list[Kernel]:
    """Return all kernels, in a fixed order. Raises ValueError if an operator is declared twice."""
    return _once(kernel for family in FAMILIES for kernel in family.kernels)


def all_named() -> list[Kernel]:
    """Return all kernels that are called by name, in a fixed order. Raises ValueError as :func:`all_kernels` does."""
    return _once(kernel for family in FAMILIES for kernel in family.by_name)


def _once(given: Iterable[Kernel]) -> list[Kernel]:
    kernels = list(given)
    if twice := sorted(name for name, count in Counter(each.name for each in kernels).items() if count > 1):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return kernels
