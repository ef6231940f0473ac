"""Activation functions and their gradients give the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, SPECIAL, assert_same, floats, integers, operators

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "celu": lambda x: F.celu(x, 0.7),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": F.gelu,
    "glu": lambda x: F.glu(x, 1),
    "glu of rows": lambda x: F.glu(x, 0),
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.6),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "log_softmax of columns": lambda x: F.log_softmax(x, 0),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "relu": F.relu,
    "relu6": F.relu6,
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.3),
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of columns": lambda x: F.softmax(x, 0),
    "softmin": lambda x: F.softmin(x, 1),
    "softplus": lambda x: F.softplus(x, 2, 3),
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 3),
}
IN_PLACE: dict[str, Callable[..., Any]] = {
    "celu": F.celu_,
    "elu": F.elu_,
    "hardsigmoid": lambda x: F.hardsigmoid(x, inplace=True),
    "hardswish": lambda x: F.hardswish(x, inplace=True),
    "hardtanh": F.hardtanh_,
    "leaky_relu": F.leaky_relu_,
    "mish": lambda x: F.mish(x, inplace=True),
    "relu": F.relu_,
    "relu6": lambda x: F.relu6(x, inplace=True),
    "selu": F.selu_,
    "silu": lambda x: F.silu(x, inplace=True),
    "threshold": lambda x: F.threshold_(x, 0.1, 3),
}


def _hard(dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([floats(36, dtype=dtype) * 3, torch.tensor(SPECIAL, dtype=dtype)]).view(6, 8)


def _of(name: str, dtype: torch.dtype) -> torch.Tensor:
    """Return hard values; without NaN where CANN lets the gradient through and the CPU does not."""
    values = _hard(dtype)
    return values.nan_to_num(0.1, torch.inf, -torch.inf) if name in ("hardtanh", "relu6") else values


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_results_and_gradients(name: str, dtype: torch.dtype) -> None:
    values = _of(name, dtype)
    if name == "gelu" and dtype == torch.float16:  # the CPU's kernel gives NaN for Inf on some processors
        values = values.nan_to_num(nan=torch.nan, posinf=100)
    assert_same(ACTIVATIONS[name], values, backward=True)
    assert_same(ACTIVATIONS[name], values, backward=True, strided=True)


def test_gelu_of_infinity_in_half_precision_is_infinity() -> None:
    assert F.gelu(torch.tensor([torch.inf], dtype=torch.float16).npu()).item() == torch.inf


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str, dtype: torch.dtype) -> None:
    assert_same(IN_PLACE[name], _hard(dtype))
    assert_same(IN_PLACE[name], _hard(dtype), strided=True)
    assert_same(lambda x: IN_PLACE[name](x * 1), _of(name, dtype), backward=True)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 2, 3, 2, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    for name in ("relu", "gelu", "silu", "softmax", "log_softmax", "sigmoid"):
        assert_same(ACTIVATIONS[name], floats(*shape), backward=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 2, 2), (6,), ()])
def test_prelu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_same(F.prelu, floats(*shape, dtype=dtype), floats(1, dtype=dtype, seed=1), backward=True)
    if len(shape) > 1:
        assert_same(F.prelu, floats(*shape, dtype=dtype), floats(6, dtype=dtype, seed=1), backward=True)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax_in_a_wider_dtype(function: Callable[..., torch.Tensor]) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert_same(lambda x: function(x, 1, dtype=torch.float32), floats(4, 9, dtype=dtype), backward=True)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_into_a_strided_output(function: Callable[..., torch.Tensor]) -> None:
    assert_same(lambda x, out: function(x, 1, out=out[:, ::2]), floats(4, 9), floats(4, 18))


@pytest.mark.parametrize("function", [F.relu, F.relu6, F.relu_])
def test_integers(function: Callable[..., torch.Tensor]) -> None:
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        assert_same(function, integers(4, 5, dtype=dtype))


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.softmax, F.log_softmax, F.softplus])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_keeps_to_the_dtypes_of_its_lists(function: Callable[..., Any], dtype: torch.dtype) -> None:
    with torch.autocast("npu", dtype=dtype):
        result = function(floats(4, 5, dtype=dtype).npu(), *([1] if "softmax" in function.__name__ else []))
    assert result.dtype == (dtype if function in (F.gelu, F.silu) else torch.float32)


def test_in_place_operators_are_the_ones_called() -> None:
    x = floats(3).npu()
    assert operators(lambda: F.relu(x)) == {"aclnnRelu"}
    assert operators(lambda: F.relu_(x)) == {"aclnnInplaceRelu"}
