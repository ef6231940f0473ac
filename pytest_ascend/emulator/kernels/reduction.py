"""Reductions: sums, extremes, statistics, norms, and cumulative sums along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import L, Optional, T


def axes_of(x: T, axes: T) -> Any:
    """Return the dimensions in a tensor, all dimensions of ``x`` if it is empty."""
    return axes.reshape(-1).tolist() or tuple(range(x.dim()))


def product(x: T, dims: Any, keepdim: bool) -> T:
    for dim in sorted((each % max(1, x.dim()) for each in dims), reverse=True):
        x = x.prod(dim, keepdim)
    return x


def cumulative(
    function: Callable[[T, int], T], first: int, x: T, axis: int, exclusive: bool = False, reverse: bool = False
) -> T:
    """Accumulate up to each element or, with ``exclusive``, before it; from the end with ``reverse``."""
    made = function(x.flip(axis) if reverse else x, axis)
    if exclusive:
        made = made.roll(1, axis).index_fill_(axis, torch.tensor([0]), first)
    return made.flip(axis) if reverse else made


def over_some(function: Callable[..., T], x: T, dims: L | None, keepdim: bool) -> T:
    """Reduce all dimensions if none are given, one after another, as torch before 2.2 requires."""
    if not x.dim():
        return function(x)
    for dim in sorted({each % x.dim() for each in dims or range(x.dim())}, reverse=True):
        x = function(x, dim, keepdim)
    return x


#: torch_npu's encoding of infinite orders.
_INFINITE = {float(2**31): float("inf"), float(-(2**31)): float("-inf")}


# --- distinct elements: their number depends on the data ---


def asked(found: tuple[T, T, T], inverse: bool, counts: bool) -> tuple[T, Optional, T]:
    """Omit results that were not requested: torch_npu has no room for them."""
    return found[0], found[1] if inverse else None, found[2] if counts else found[2][:0]
