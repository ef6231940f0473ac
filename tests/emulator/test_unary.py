"""Functions of one operand give the same bits on the emulated device as on the CPU."""

from __future__ import annotations

import pytest
import torch

from .both import FLOATS, SPECIAL, assert_same, floats, integers, operators

BOTH = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "log",
    "log10",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
WITH_OUTPUT = ["abs", "angle", "neg", "round", "sgn", "sign", "trunc"]


def _hard(dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([floats(28, dtype=dtype), torch.tensor(SPECIAL, dtype=dtype)]).view(5, 8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*BOTH, *WITH_OUTPUT])
def test_with_output(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    # The gradient of rsqrt is a power, which the device computes in float32, as a chip does, and the CPU in bfloat16.
    assert_same(function, _hard(dtype), backward=(name, dtype) != ("rsqrt", torch.bfloat16))
    assert_same(function, _hard(dtype), strided=True)
    assert_same(lambda x: function(x, out=torch.empty_like(x)), _hard(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BOTH)
def test_in_place(name: str, dtype: torch.dtype) -> None:
    assert_same(lambda x: getattr(x, f"{name}_")(), _hard(dtype))
    assert_same(lambda x: getattr(x[:, 1:3], f"{name}_")(), _hard(dtype))


@pytest.mark.parametrize("name", ["abs", "neg", "sign", "bitwise_not", "ceil", "floor", "round", "trunc"])
def test_integers(name: str) -> None:
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        by = "any" if name in {"round", "trunc"} else "device"  # which change no integer
        assert_same(getattr(torch, name), integers(3, 5, dtype=dtype), by=by)


@pytest.mark.parametrize("name", ["sin", "sqrt", "sigmoid", "exp", "reciprocal", "rsqrt", "log"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_floats_of_integers(name: str, dtype: torch.dtype) -> None:
    assert_same(getattr(torch, name), integers(3, 5, dtype=dtype))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 2, 1, 2, 1, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert_same(torch.exp, floats(*shape), backward=True)
    assert_same(lambda x: x.exp_(), floats(*shape))


@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_round_to_decimals(decimals: int) -> None:
    assert_same(torch.round, floats(3, 5) * 30, decimals=decimals)
    assert_same(lambda x: x.round_(decimals=decimals), floats(3, 5) * 30)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_logit(eps: float | None) -> None:
    assert_same(torch.logit, floats(3, 5), backward=True, eps=eps)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
def test_nan_to_num(dtype: torch.dtype) -> None:
    assert_same(torch.nan_to_num, _hard(dtype), backward=True)
    assert_same(torch.nan_to_num, _hard(dtype), nan=1.0, posinf=2.0, neginf=3.0)
    assert_same(lambda x: x.nan_to_num_(), _hard(dtype), strided=True)


def test_angle_and_absolute_value_of_complex_numbers() -> None:
    numbers = torch.complex(floats(3, 5), floats(3, 5, seed=1))
    assert_same(torch.angle, numbers)
    assert_same(torch.abs, numbers)
    assert_same(torch.sgn, numbers)


def test_in_place_operators_are_the_ones_called() -> None:
    x = floats(3).npu()
    assert "aclnnInplaceExp" in operators(x.exp_)
    assert "aclnnExp" in operators(x.exp)
