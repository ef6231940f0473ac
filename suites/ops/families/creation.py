"""Conversion between dtypes, filling, and ranges."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators.operator import ALL, ARITHMETIC, FLOATS, INTS, MOVE, Draw, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, Sample, call
from pytest_ascend.operators.values import Number, Values, normal, uniform

from ..makers import exactly, in_family, numbers

_TO = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.bool)
#: Halfway between two float16 and two bfloat16 numbers, both ways; the last that float16 holds, and the first it lacks.
_BETWEEN: tuple[Number, ...] = (
    *(1 + odd * 2.0**-bits for bits in (8, 9, 11, 12) for odd in (1, 3)),
    65504.0, 65519.0, 65520.0, -65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25,
    "nan", "inf", "-inf", 0.0, -0.0,
)  # fmt: skip
_like: Values = normal(3, 5, grad=False)
_filled = exactly(
    call(normal(3, 5, grad=False)), call(normal(grad=False), group=SHAPES), call(normal(0, 3), group=SHAPES)
)


def _conversions(draw: Draw) -> Iterator[Sample]:
    """To each dtype, from values that it can hold: beyond them, nothing is promised of integers."""
    for target in _TO:
        wide = target in (torch.int64, torch.float32, torch.int32) and not draw.dtype.is_floating_point
        end = 2.0**30 + 2.0**28 if wide else 90.0
        yield call(uniform(5, 51, low=-end, high=end), target)
        if draw.dtype.is_floating_point and target.is_floating_point:
            yield call(numbers(*_BETWEEN), target, group=SPECIAL)
    yield call(normal(), torch.float16, group=SHAPES)
    yield call(normal(0, 3), torch.float16, group=SHAPES)


def _arange(like: torch.Tensor, *ends: float) -> torch.Tensor:
    return torch.arange(*ends, dtype=like.dtype, device=like.device)


def _linspace(like: torch.Tensor, *ends: Any) -> torch.Tensor:
    return torch.linspace(*ends, dtype=like.dtype, device=like.device)


def _eye(like: torch.Tensor, *sizes: int) -> torch.Tensor:
    return torch.eye(*sizes, dtype=like.dtype, device=like.device)


def _filled_with(tensor: torch.Tensor, number: float) -> torch.Tensor:
    return tensor.clone().fill_(number)


def _copied_from(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return tensor.clone().copy_(source)


_numbers = FLOATS + INTS
_fixed = partial(Operator, dtypes=ALL, exactness=MOVE, grad=False)
_ranges = exactly(call(_like, 17), call(_like, 3, 20, 2), call(_like, 9, -3, -1), call(_like, 5, 5, group=SHAPES))
_spaces = exactly(call(_like, 0, 4, 17), call(_like, -2, 3, 5), call(_like, 1, 1, 1, group=SHAPES))
_sources = exactly(
    *(
        call(normal(3, 5, grad=False), uniform(3, 5, low=-9, high=9, dtype=each))
        for each in ("float32", "bfloat16", "int64")
    ),
    call(normal(3, 5), normal(5)),
)

OPERATORS = in_family(
    "creation",
    Operator("to", torch.Tensor.to, _conversions, ALL, exactness=MOVE),
    _fixed("zeros_like", torch.zeros_like, _filled),
    _fixed("ones_like", torch.ones_like, _filled),
    _fixed("full_like", torch.full_like, exactly(call(_like, 3), call(_like, 1, group=SHAPES, name="one"))),
    _fixed("fill_", _filled_with, exactly(call(_like, 3), call(normal(3, 5, 7, grad=False), 1))),
    _fixed("copy_", _copied_from, _sources, dtypes=_numbers, grad=True),
    _fixed("arange", _arange, _ranges, dtypes=_numbers),
    Operator("linspace", _linspace, _spaces, grad=False, exactness=ARITHMETIC, terms=16),
    _fixed("eye", _eye, exactly(call(_like, 5), call(_like, 3, 4))),
)
