"""The operators of the emulated CANN, by family."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_ascend.emulator.kernels import (
    activation,
    atb,
    attention,
    convolution,
    detection,
    elementwise,
    gated,
    indexing,
    inference,
    linear,
    linear_algebra,
    loss,
    mc2,
    mc2_quantized,
    normalization,
    optimizer,
    overflow,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    routing,
    serving,
    shaping,
)
from pytest_ascend.emulator.registry import Kernel

FAMILIES = (
    activation.family,
    atb.family,
    convolution.family,
    detection.family,
    elementwise.family,
    attention.family,
    gated.family,
    indexing.family,
    inference.family,
    linear.family,
    linear_algebra.family,
    loss.family,
    mc2.family,
    mc2_quantized.family,
    normalization.family,
    optimizer.family,
    overflow.family,
    pooling.family,
    quantization.family,
    random.family,
    recurrent.family,
    reduction.family,
    routing.family,
    serving.family,
    shaping.family,
)


def all_kernels() -> list[Kernel]:
    """Return all kernels, in a fixed order. Raises ValueError if an operator is declared twice."""
    return _once(kernel for family in FAMILIES for kernel in family.kernels)


def all_named() -> list[Kernel]:
    """Return all kernels that are called by name, in a fixed order. Raises ValueError as :func:`all_kernels` does."""
    return _once(kernel for family in FAMILIES for kernel in family.by_name)


def _once(given: Iterable[Kernel]) -> list[Kernel]:
    kernels = list(given)
    names = [kernel.name for kernel in kernels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return kernels
