"""Sorting, searching and distinct elements give the same on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .both import FLOATS, INTEGERS, assert_same, floats, integers, operators

ORDERED: dict[str, Callable[..., Any]] = {
    "sort": torch.sort,
    "sort descending": lambda x: x.sort(0, descending=True),
    "stable sort": lambda x: torch.sort(x, dim=1, stable=True),
    "argsort": torch.argsort,
    "msort": torch.msort,
    "topk": lambda x: x.topk(2),
    "topk, smallest, along 0": lambda x: x.topk(3, 0, largest=False),
    "topk, any order": lambda x: x.topk(2, sorted=False),
}

DISTINCT: dict[str, Callable[..., Any]] = {
    "unique": torch.unique,
    "with inverse": lambda x: torch.unique(x, return_inverse=True),
    "with counts": lambda x: torch.unique(x, return_counts=True),
    "with both": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "along a dimension": lambda x: torch.unique(x, dim=0),
    "along a dimension, with both": lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
    "the older operator": lambda x: torch._unique(x, return_inverse=True),
    "consecutive": torch.unique_consecutive,
    "consecutive with inverse": lambda x: torch.unique_consecutive(x, return_inverse=True),
    "consecutive with counts": lambda x: torch.unique_consecutive(x, return_counts=True),
    "consecutive along a dimension": lambda x: torch.unique_consecutive(x, dim=0),
    "consecutive along a dimension with both": lambda x: torch.unique_consecutive(x, True, True, 1),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ORDERED)
def test_floats_are_ordered(name: str, dtype: torch.dtype) -> None:
    assert_same(ORDERED[name], floats(4, 6, dtype=dtype), strided=True)
    if "arg" not in name:
        assert_same(ORDERED[name], floats(4, 6, dtype=dtype), backward=True)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ORDERED)
def test_integers_are_ordered(name: str, dtype: torch.dtype) -> None:
    assert_same(ORDERED[name], integers(4, 6, low=0, high=100, dtype=dtype))


def test_nan_is_the_largest() -> None:
    values = torch.tensor([1.0, float("nan"), -1.0, float("inf")])
    assert_same(torch.sort, values)
    assert_same(lambda x: x.topk(2), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("name", DISTINCT)
def test_distinct_elements(name: str, dtype: torch.dtype) -> None:
    assert_same(DISTINCT[name], integers(5, 2, low=0, high=2, dtype=dtype))


@pytest.mark.parametrize("values", [torch.tensor([]), torch.tensor(3.0), torch.tensor([True, False, True])])
def test_distinct_elements_of_odd_tensors(values: torch.Tensor) -> None:
    assert_same(DISTINCT["with both"], values)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
@pytest.mark.parametrize("right", [False, True])
def test_searching(right: bool, dtype: torch.dtype) -> None:
    edges, values = integers(7, dtype=dtype).sort().values, integers(3, 4, dtype=dtype, seed=1)
    assert_same(lambda e, x: torch.searchsorted(e, x, right=right), edges, values)
    assert_same(lambda e, x: torch.bucketize(x, e, right=right, out_int32=True), edges, values)
    assert_same(lambda e: torch.searchsorted(e, 2, right=right), edges)
    unsorted = integers(7, dtype=dtype)
    assert_same(lambda u, x: torch.searchsorted(u, x, sorter=u.argsort()), unsorted, values)


def test_isin() -> None:
    assert_same(torch.isin, integers(4, 5), integers(3, seed=1))
    assert_same(lambda x: torch.isin(x, 2), integers(4, 5))
    assert_same(lambda x: torch.isin(x, 2, invert=True), integers(4, 5))
    assert_same(lambda x: torch.isin(2, x), integers(4, 5))


def test_the_operators_run_on_the_device() -> None:
    x = floats(3, 4).npu()
    assert operators(x.sort) == {"aclnnSort"}
    assert operators(lambda: x.topk(2)) == {"aclnnTopkV2"}
    assert operators(x.unique) == {"aclnnUnique2"}
