"""Comparisons, logic and choices give the same on the emulated device as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .both import FLOATS, INTEGERS, SPECIAL, assert_same, floats, integers, operators

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor(SPECIAL, dtype=dtype)
    return values[:, None].expand(12, 12).contiguous(), values[None].expand(12, 12).contiguous()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    assert_same(function, *_pair(dtype), strided=True)
    assert_same(lambda a, b: function(a, b[0, 2]), *_pair(dtype))
    assert_same(function, _pair(dtype)[0], 1)
    assert_same(function, _pair(dtype)[0], 0.7)
    assert_same(lambda a, b: getattr(a, f"{name}_")(b), *_pair(dtype))
    assert_same(lambda a: getattr(a, f"{name}_")(0.5), _pair(dtype)[0])


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_integers(name: str, dtype: torch.dtype) -> None:
    assert_same(getattr(torch, name), integers(4, 5, dtype=dtype), integers(1, 5, dtype=dtype, seed=1))
    assert_same(getattr(torch, name), integers(4, 5, dtype=dtype), 1)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.bool])
@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str, dtype: torch.dtype) -> None:
    left, right = integers(4, 5, low=-1, high=2, dtype=dtype), integers(4, 5, low=-1, high=2, dtype=dtype, seed=1)
    assert_same(getattr(torch, name), left, right)
    assert_same(lambda a, b: getattr(a, f"{name}_")(b), left, right)
    assert_same(torch.logical_not, left)
    assert_same(lambda x: x.logical_not_(), left)


@pytest.mark.parametrize("name", ["isfinite", "isnan", "isinf", "isposinf", "isneginf", "signbit", "isreal"])
def test_kinds_of_numbers(name: str) -> None:
    for dtype in FLOATS:
        assert_same(getattr(torch, name), _pair(dtype)[0])
    assert_same(getattr(torch, name), integers(3, 5), by="any" if name == "isinf" else "device")  # no integer is


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool])
def test_where(dtype: torch.dtype) -> None:
    condition = integers(3, 1, 5, low=0, high=2, dtype=torch.bool)
    assert_same(torch.where, condition, integers(4, 5, dtype=dtype), integers(4, 1, dtype=dtype))
    assert_same(lambda c, a: torch.where(c, a, 0), condition, integers(4, 5, dtype=dtype))


def test_gradients_of_where() -> None:
    assert_same(lambda a, b: torch.where(a > b, a, b), floats(3, 5), floats(5, seed=1), backward=True)


def test_where_promotes() -> None:
    assert_same(torch.where, integers(9, low=0, high=2, dtype=torch.bool), floats(9), integers(9))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(equal_nan: bool) -> None:
    options: dict[str, Any] = {"rtol": 0.1, "atol": 0.01, "equal_nan": equal_nan}
    for dtype in FLOATS:
        assert_same(torch.isclose, *_pair(dtype), **options)
        assert_same(torch.allclose, *_pair(dtype), **options)


def test_equality_of_whole_tensors() -> None:
    assert_same(torch.equal, floats(3, 5), floats(3, 5))
    assert_same(torch.equal, floats(3, 5), floats(3, 5, seed=1))
    assert_same(torch.equal, floats(0), floats(0))


def test_comparing_with_a_number_calls_the_operator_for_it() -> None:
    x = floats(3).npu()
    assert operators(lambda: x > 1) == {"aclnnGtScalar"}
    assert operators(lambda: x > -x) - {"aclnnNeg"} == {"aclnnGtTensor"}
