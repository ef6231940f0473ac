"""The operators of the emulated CANN, by family."""

from __future__ import annotations

from pytest_ascend.emulator.kernels import (
    activation,
    amp,
    comparison,
    convolution,
    creation,
    distance,
    elementwise,
    flash,
    foreach,
    fused_normalization,
    gated,
    indexing,
    linear,
    linear_algebra,
    loss,
    normalization,
    optimizer,
    pooling,
    random,
    reduction,
    shaping,
    sorting,
    unary,
    upsample,
)
from pytest_ascend.emulator.registry import Kernel

FAMILIES = (
    activation.family,
    amp.family,
    comparison.family,
    convolution.family,
    creation.family,
    distance.family,
    elementwise.family,
    flash.family,
    foreach.family,
    fused_normalization.family,
    gated.family,
    indexing.family,
    linear.family,
    linear_algebra.family,
    loss.family,
    normalization.family,
    optimizer.family,
    pooling.family,
    random.family,
    reduction.family,
    shaping.family,
    sorting.family,
    unary.family,
    upsample.family,
)


def all_kernels() -> list[Kernel]:
    """Give all kernels, in a fixed order. Raises ValueError where an operator is declared twice."""
    kernels = [kernel for family in FAMILIES for kernel in family.kernels]
    names = [kernel.name for kernel in kernels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return kernels
