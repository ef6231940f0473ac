"""Pooling gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, assert_same, floats, integers

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[Any, ...]]] = {
    "max, 1d": (F.max_pool1d, (2, 3, 9), (2,)),
    "max, 2d": (F.max_pool2d, (2, 3, 9, 9), (3, 2, 1)),
    "max, 2d, dilated, ceil": (F.max_pool2d, (2, 3, 9, 9), (3, 2, 1, 2, True)),
    "max, 2d, one image": (F.max_pool2d, (3, 9, 9), (2,)),
    "max, 2d, windows of one": (F.max_pool2d, (2, 3, 9, 9), (1, 2)),
    "max, 3d": (F.max_pool3d, (2, 3, 5, 5, 5), (2,)),
    "mean, 1d": (F.avg_pool1d, (2, 3, 9), (3, 2, 1)),
    "mean, 2d": (F.avg_pool2d, (2, 3, 9, 9), (3, 2, 1)),
    "mean, 2d, padding not counted": (F.avg_pool2d, (2, 3, 9, 9), (3, 2, 1, True, False)),
    "mean, 2d, divided by 5": (F.avg_pool2d, (2, 3, 9, 9), (3, 2, 1, True, False, 5)),
    "adaptive mean, 1d": (F.adaptive_avg_pool1d, (2, 3, 9), (4,)),
    "adaptive mean, 2d": (F.adaptive_avg_pool2d, (2, 3, 9, 9), (4,)),
    "adaptive mean, 2d, to one": (F.adaptive_avg_pool2d, (2, 3, 9, 9), (1,)),
    "adaptive mean, 3d": (F.adaptive_avg_pool3d, (2, 3, 5, 5, 5), (2,)),
    "adaptive max, 1d": (F.adaptive_max_pool1d, (2, 3, 9), (4,)),
    "adaptive max, 2d": (F.adaptive_max_pool2d, (2, 3, 9, 9), (4,)),
    "adaptive max, 3d": (F.adaptive_max_pool3d, (2, 3, 5, 5, 5), (2,)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_pool_and_its_gradient(name: str, dtype: torch.dtype) -> None:
    function, shape, arguments = CASES[name]
    assert_same(function, floats(*shape, dtype=dtype), *arguments, backward=True)


def test_mean_of_boxes() -> None:
    assert_same(F.avg_pool3d, floats(2, 3, 5, 5, 5), 3, 2, 1, backward=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_mean_of_boxes_is_rounded_once_where_cpu_lacks_the_dtype(dtype: torch.dtype) -> None:
    x = floats(2, 3, 5, 5, 5, dtype=dtype)
    assert torch.equal(F.avg_pool3d(x.npu(), 2).cpu(), F.avg_pool3d(x.float(), 2).to(dtype))


def test_windows_with_holes_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"161002(.|\n)*dilation should be equal 1, but got \[1, 2, 1\]"):
        F.max_pool3d(floats(1, 2, 5, 5, 5).npu(), 2, dilation=(1, 2, 1))


def test_largest_of_nan_and_equal_values() -> None:
    x = integers(2, 3, 8, 8, low=0, high=3).float()
    x[0, 0, 0, 0] = float("nan")
    assert_same(F.max_pool2d, x, 2, backward=True)


def test_places_of_the_largest() -> None:
    assert_same(F.adaptive_max_pool2d, floats(2, 3, 9, 9), 4, return_indices=True)
    values = F.max_pool3d(floats(2, 3, 4, 4, 4).npu(), 2, return_indices=True)[1].cpu()
    assert torch.equal(values.long(), F.max_pool3d(floats(2, 3, 4, 4, 4), 2, return_indices=True)[1])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_unpooling(dimensions: int) -> None:
    pool, unpool = getattr(F, f"max_pool{dimensions}d"), getattr(F, f"max_unpool{dimensions}d")
    values, places = pool(floats(2, 3, *[4] * dimensions), 2, return_indices=True)
    assert_same(lambda x, where: unpool(x, where, 2), values, places, backward=True)
