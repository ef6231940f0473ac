"""How each kind of described values is made, and the numbers of a dtype that have names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from pytest_ascend.run import inputs

if TYPE_CHECKING:
    from pytest_ascend.operators.values import Values

#: Named numbers of a floating dtype: its largest, its smallest normal one, its smallest of all, the step after 1.
NAMED: Mapping[str, Callable[[torch.finfo], float]] = {
    "max": lambda info: info.max,
    "-max": lambda info: -info.max,
    "tiny": lambda info: info.smallest_normal,
    "-tiny": lambda info: -info.smallest_normal,
    "denormal": lambda info: info.smallest_normal / 4,
    "-denormal": lambda info: -info.smallest_normal / 4,
    "least": lambda info: info.smallest_normal * info.eps,
    "1+eps": lambda info: 1 + info.eps,
}


def _uniform(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return inputs.uniform(key, values.shape, low=values.low, high=values.high, dtype=dtype)
    return _integers(values, key, dtype)


def _normal(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return inputs.normal(key, values.shape, std=values.high, dtype=dtype)
    return _integers(values, key, dtype)


def _integers(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    first, step, count = range_of(values, dtype)
    if step == 1:
        return inputs.integers(key, values.shape, low=first, high=first + count)
    return inputs.integers(key, values.shape, low=0, high=count) * step + first


def range_of(values: Values, dtype: torch.dtype) -> tuple[int, int, int]:
    """Return the first of the integers to choose from, their distance and their number.

    They cover as much of [low, high] as the dtype holds; in steps if that is more than 2**32.
    """
    low, high = values.low, values.high
    if values.kind == "normal":
        high = 1 if dtype is torch.bool else min(2**40, torch.iinfo(dtype).max // 4)
        low = -high
    least, most = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    first, last = max(math.ceil(low), least), min(math.floor(high), most)
    step = (last - first) // 2**31 + 1
    return first, step, (last - first) // step + 1


def _distinct(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(values.shape)
    order = inputs.permutation(key, count) - count // 2
    return (order * 0.25 if dtype.is_floating_point else order).reshape(values.shape)


def _places(values: Values, key: str, _: torch.dtype) -> torch.Tensor:
    """Each line has the same order, and starts further on than the one before."""
    dim = int(values.low) % len(values.shape)
    count = values.shape[dim]
    if not count:
        return torch.empty(values.shape, dtype=torch.int64)
    others = [1 if place == dim else size for place, size in enumerate(values.shape)]
    starts = torch.arange(math.prod(others)).reshape(others)
    along = torch.arange(count).reshape([-1 if place == dim else 1 for place in range(len(others))])
    return inputs.permutation(key, count)[(along + starts) % count]


def _few(values: Values, key: str, _: torch.dtype) -> torch.Tensor:
    return _integers(values, key, torch.uint8)


def _whole(values: Values, key: str, _: torch.dtype) -> torch.Tensor:
    return _integers(values, key, torch.int64)


def _addends(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    return inputs.integers(key, values.shape, low=1, high=3 if dtype.itemsize < 4 else 4096)


def _rising(values: Values, key: str, _: torch.dtype) -> torch.Tensor:
    return inputs.rising(key, values.shape, dim=int(values.low), high=int(values.high))


def _codes(values: Values, _: str, __: torch.dtype) -> torch.Tensor:
    rows, depth = values.shape[-2:]
    bits = torch.arange(rows)[:, None] >> torch.arange(depth) & 1
    return (int(values.high) * (1 - 2 * bits)).expand(values.shape).contiguous()


def _given(values: Values, _: str, dtype: torch.dtype) -> torch.Tensor:
    numbers = [NAMED[each](torch.finfo(dtype)) if isinstance(each, str) else each for each in values.numbers]
    made = torch.float64 if dtype.is_floating_point else torch.int64
    return torch.tensor(numbers, dtype=made).reshape(values.shape)


#: How each kind of values is made.
KINDS: Mapping[str, Callable[[Values, str, torch.dtype], torch.Tensor]] = {
    "uniform": _uniform,
    "normal": _normal,
    "distinct": _distinct,
    "places": _places,
    "few": _few,
    "given": _given,
    "whole": _whole,
    "addends": _addends,
    "rising": _rising,
    "codes": _codes,
}
