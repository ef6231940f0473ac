"""Reductions: sums, extremes, statistics, norms, and cumulative sums along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import L, Optional, T
from pytest_ascend.emulator.tensors import Refused


def axes_of(x: T, axes: T) -> Any:
    """Return the dimensions in a tensor, all of another one if it is empty."""
    return axes.reshape(-1).tolist() or tuple(range(x.dim()))


def vector_norm(x: T, order: Any, dims: Any, keepdim: bool, dtype: torch.dtype) -> T:
    """Return a norm of real numbers: CANN takes no complex ones (CheckDtypeValid in aclnn_linalg_vector_norm.cpp)."""
    if x.is_complex():
        raise Refused("The operator does not support the complex number type.")
    made: T = torch.linalg.vector_norm(x, order, dims, keepdim, dtype=None if dtype == x.dtype else dtype)
    return made


def product(x: T, dims: Any, keepdim: bool) -> T:
    for dim in sorted((each % max(1, x.dim()) for each in dims), reverse=True):
        x = x.prod(dim, keepdim)
    return x


def spread_by_name(
    x: T, _: T, *, dim: L, keepdim: bool, unbiased: bool = True, correction: int = 1, if_std: bool = True, **__: Any
) -> T:
    """Return the standard deviation or the variance; the given mean is not needed."""
    spread = torch.std if if_std else torch.var
    return spread(x, dim or None, correction=correction if unbiased else 0, keepdim=keepdim)


def cumulative(
    function: Callable[[T, int], T], first: int, x: T, axis: int, exclusive: bool = False, reverse: bool = False
) -> T:
    """Accumulate up to each element or, with ``exclusive``, before it; from the end with ``reverse``."""
    made = function(x.flip(axis) if reverse else x, axis)
    if exclusive:
        made = made.roll(1, axis).index_fill_(axis, torch.tensor([0]), first)
    return made.flip(axis) if reverse else made


def over_some(function: Callable[..., T], x: T, dims: L | None, keepdim: bool) -> T:
    """Reduce all dimensions if none are given, one after another, as torch before 2.2 wants it."""
    if not x.dim():
        return function(x)
    for dim in sorted({each % x.dim() for each in dims or range(x.dim())}, reverse=True):
        x = function(x, dim, keepdim)
    return x


#: torch_npu's spelling of infinite orders.
_INFINITE = {float(2**31): float("inf"), float(-(2**31)): float("-inf")}


def lp_norm_reduce(x: T, p: float, axes: L, keepdim: bool, epsilon: float) -> T:  # noqa: ARG001
    """Return a norm without the root, which another operator takes: the sum of powers, a count, or an extreme."""
    order = _INFINITE.get(p, p)
    size = x.abs()
    if order in (float("inf"), float("-inf")):
        return (torch.amax if order > 0 else torch.amin)(size, axes, keepdim)
    powers = (size != 0).float() if order == 0 else size if order == 1 else size.pow(order)
    return torch.sum(powers, axes, keepdim)


# --- distinct elements: their number depends on the data ---


def asked(found: tuple[T, T, T], inverse: bool, counts: bool) -> tuple[T, Optional, T]:
    """Omit results that were not requested: torch_npu has no room for them."""
    return found[0], found[1] if inverse else None, found[2] if counts else found[2][:0]
