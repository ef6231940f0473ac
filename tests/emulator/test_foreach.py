"""Operators on lists of tensors give the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .both import FLOATS, assert_same, floats
from .kernel import called

Tensors = list[torch.Tensor]

UNARY = (
    *("abs", "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("neg", "reciprocal", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
    *("ceil", "floor", "frac", "round", "trunc"),
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "clamp_min", "clamp_max")


def _list(dtype: torch.dtype, seed: int = 0) -> Tensors:
    return [floats(3, 4, dtype=dtype, seed=seed), floats(5, dtype=dtype, seed=seed + 1), floats(dtype=dtype, seed=seed)]


def _positive(dtype: torch.dtype, seed: int = 0) -> Tensors:
    return [each.abs() + 0.5 for each in _list(dtype, seed)]


def _foreach(name: str) -> Any:
    return getattr(torch, f"_foreach_{name}")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_of_one_list(name: str, dtype: torch.dtype) -> None:
    for values in (_list(dtype), _positive(dtype)):
        assert_same(_foreach(name), values)
        assert_same(_foreach(f"{name}_"), values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_of_a_list_and_another_operand(name: str, dtype: torch.dtype) -> None:
    for other in (0.3, 2, [0.5, 1.5, 2.0], _positive(dtype, 4)):
        assert_same(_foreach(name), _positive(dtype), other)
        assert_same(_foreach(f"{name}_"), _positive(dtype), other)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_of_three_lists(name: str, dtype: torch.dtype) -> None:
    for value in (0.3, [0.3, 0.4, 0.5]):
        lists = _list(dtype), _list(dtype, 3), _positive(dtype, 6)
        assert_same(_foreach(name), *lists, value)
        assert_same(_foreach(f"{name}_"), *lists, value)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_lists_with_a_factor(dtype: torch.dtype) -> None:
    assert_same(_foreach("add"), _list(dtype), _list(dtype, 3), alpha=0.3)
    assert_same(_foreach("sub_"), _list(dtype), _list(dtype, 3), alpha=0.3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_interpolation(dtype: torch.dtype) -> None:
    for weight in (0.3, _list(dtype, 6)):
        assert_same(_foreach("lerp_"), _list(dtype), _list(dtype, 3), weight)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norms_powers_of_a_number_copies_and_zeros(dtype: torch.dtype) -> None:
    assert_same(_foreach("norm"), _list(dtype))
    assert_same(_foreach("pow"), 2.0, _list(dtype))
    assert_same(_foreach("copy_"), _list(dtype), _list(dtype, 3))
    assert_same(_foreach("zero_"), _list(dtype))


def test_integers_and_a_fraction() -> None:
    assert_same(_foreach("mul"), [torch.arange(4), torch.arange(3)], 0.5)
    assert_same(_foreach("div"), [torch.arange(4), torch.arange(3)], 2)


def test_half_precision_is_rounded_at_each_step_as_chips_do_it_on_lists() -> None:
    a, b, c = (torch.randn(40, 33, generator=torch.Generator().manual_seed(seed)).half() for seed in (1, 2, 3))
    x, y, z = (each.numpy() for each in (a, b, c))
    device = [[each.npu()] for each in (a, b, c)]
    number = np.float16(0.3)
    for made, expected in (
        (torch._foreach_add(device[0], device[1], alpha=5.0)[0], x + y * np.float16(5)),
        (torch._foreach_sub(device[0], device[1], alpha=0.3)[0], x - y * number),
        (torch._foreach_addcdiv(*device, 0.3)[0], x + y / z * number),
        (torch._foreach_addcmul(*device, 0.3)[0], x + y * z * number),
    ):
        ulps = (made.cpu().view(torch.int16).int() - torch.from_numpy(expected).view(torch.int16).int()).abs()
        assert int(ulps.max()) == 0


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
def test_a_number_in_a_tensor_is_not_rounded_to_bfloat16(name: str) -> None:
    """The scalar of the first versions is float32 beside bfloat16 (ops-nn e5c3fa9327ea, foreach_add_scalar_def.cpp)."""
    x, number = floats(40, dtype=torch.bfloat16), torch.tensor([1.2345678])
    out = [torch.empty_like(x)]
    called(f"Foreach{name}Scalar", [x], number, out=out)
    torch.testing.assert_close(out[0], getattr(x.float(), name.lower())(number).bfloat16(), rtol=0, atol=0)
