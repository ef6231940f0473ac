"""Templates of generated calls for recorded operators, in kernels and sizes that no recorded call has.

Recorded calls are few and small: unrelated sizes are often equal and cannot change separately. Here all sizes differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators.operator import Inputs
from pytest_ascend.operators.samples import TEMPLATE, Sample, call, integers, normal, uniform

from .makers import exactly

_template = partial(call, group=TEMPLATE)
_PLANE, _VOLUME = (3, 4, 6, 7), (2, 4, 5, 6, 7)
#: Padding of one to three dimensions, different at each end.
_MARGINS = {1: (2, 1), 2: (1, 2, 2, 1), 3: (1, 2, 1, 1, 2, 1)}


def _padded() -> Iterator[Sample]:
    """Yield padding in every mode; each has kernels for one, two and three dimensions."""
    for dims, shape in ((1, (3, 5, 8)), (2, _PLANE), (3, _VOLUME)):
        yield _template(normal(*shape), _MARGINS[dims], "constant", 1.5)
        for mode in ("reflect", "replicate", "circular"):
            yield _template(normal(*shape), _MARGINS[dims], mode)
        yield _template(normal(*shape[1:]), _MARGINS[dims], "reflect")
        yield _template(normal(*shape[1:]), _MARGINS[dims], "replicate")
    yield _template(normal(*_PLANE), (-1, 2, 1, -2), "constant", 0.0)
    yield _template(normal(9), (2, 3))


_images = (
    (normal(*_PLANE), uniform(3, 8, 9, 2, low=-1.2, high=1.2)),
    (normal(*_VOLUME), uniform(2, 8, 9, 10, 3, low=-1.2, high=1.2)),
)
_WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False},
    {"mode": "nearest", "padding_mode": "border", "align_corners": True},
    {"mode": "bilinear", "padding_mode": "reflection", "align_corners": True},
    {"mode": "nearest", "padding_mode": "zeros", "align_corners": False},
)
#: The same as numbers: mode, padding, corners.
_CODES = ((0, 0, False), (1, 1, True), (0, 2, True), (1, 0, False))
_bicubic: dict[str, Any] = {"mode": "bicubic", "padding_mode": "border", "align_corners": False}


def _resized() -> Iterator[Sample]:
    """Yield interpolation in the modes for which the table has no operator."""
    for mode, shape, sizes in (("linear", (3, 4, 7), ((11,), (5,))), ("trilinear", _VOLUME, ((8, 3, 9), (4, 9, 5)))):
        for size in sizes:
            yield _template(normal(*shape), size=size, mode=mode, align_corners=False)
        yield _template(normal(*shape), size=sizes[0], mode=mode, align_corners=True)
        yield _template(normal(*shape), scale_factor=2.0, mode=mode)
    for mode in ("bilinear", "bicubic"):
        yield _template(normal(*_PLANE), size=(4, 3), mode=mode, antialias=True)
        yield _template(normal(*_PLANE), size=(9, 5), mode=mode, antialias=True)
    yield _template(normal(3, 4, 8), size=(5,), mode="area")
    yield _template(normal(*_PLANE), size=(4, 5), mode="area")


_lists = ([normal(7, 5), normal(3)], [normal(4, 6)])
#: Operators on lists with separate kernels for a scalar operand.
_WITH_A_NUMBER = ("add", "mul", "div", "clamp_min", "clamp_max", "minimum", "maximum")
_quotients = [uniform(7, 5, low=1, high=2), uniform(3, low=1, high=2)]
_scores, _classes = normal(9, 5), integers(9, low=0, high=6)

#: Operator -> its further templates.
FURTHER: Mapping[str, Inputs] = {
    **{f"_foreach_{name}": exactly(*(_template(each, 2) for each in _lists)) for name in _WITH_A_NUMBER},
    "_foreach_sub": lambda make: (_template(each, 2) for each in _lists if make.dtype is not torch.int64),
    "_foreach_pow": exactly(_template(_quotients, 3), _template(_lists[0], 2)),
    "_foreach_addcmul": exactly(*(_template(each, each, each, value=2) for each in _lists)),
    "_foreach_addcdiv": exactly(_template(_quotients, _quotients, _quotients, value=2)),
    "embedding_bag": exactly(
        *(_template(normal(8, 5), integers(6, 3, low=0, high=6), max_norm=1.5, mode=mode) for mode in ("sum", "mean"))
    ),
    "linear_cross_entropy": lambda _: (
        _template(_scores, normal(7, 5), _classes, linear_bias=bias, reduction=each)
        for each in ("none", "mean", "sum")
        for bias in (None, normal(7))
    ),
    "scatter_reduce": lambda _: (
        _template(normal(7, 5), 0, integers(11, 5, low=0, high=6), normal(11, 5), "sum", include_self=each)
        for each in (True, False)
    ),
}
#: Templates for operators whose recorded calls are unsuitable: they need float64, or other operators have them.
INSTEAD: Mapping[str, Inputs] = {
    "_foreach_norm": exactly(*(_template(each, power) for power in (2, 1, float("inf"), 0) for each in _lists)),
    "pad": exactly(*_padded()),
    "grid_sample": exactly(
        *(_template(*pair, **named) for named in _WAYS for pair in _images), _template(*_images[0], **_bicubic)
    ),
    "grid_sampler_2d": exactly(*(_template(*_images[0], *codes) for codes in _CODES)),
    "grid_sampler_3d": exactly(*(_template(*_images[1], *codes) for codes in _CODES)),
    "interpolate": exactly(*_resized()),
}
