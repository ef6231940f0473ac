"""Arithmetic gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import elementwise

from .both import FLOATS, INTEGERS, SPECIAL, assert_as_near, assert_identical, assert_same, floats, integers

MIXED = (torch.float32, torch.float16, torch.int64, torch.bool)

#: Functions of two tensors, and of a tensor and a number.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "add with alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub": torch.sub,
    "sub with alpha": lambda a, b: torch.sub(a, b, alpha=3),
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "xlogy": torch.xlogy,
}
OF_TENSORS: dict[str, Callable[..., Any]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max": torch.max,
    "atan2": torch.atan2,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
}
#: What torch_npu leaves to the CPU.
BY_THE_CPU = {"fmax": torch.fmax, "hypot": torch.hypot}
WITHOUT_GRADIENT = ("floor_divide",)
IN_PLACE = [
    "add_",
    "sub_",
    "mul_",
    "div_",
    "floor_divide_",
    "fmod_",
    "remainder_",
    "pow_",
    "atan2_",
    "xlogy_",
    "clamp_min_",
    "clamp_max_",
]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]


def _pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of special values, and some ordinary ones."""
    values = torch.cat([floats(4, dtype=dtype), torch.tensor(SPECIAL, dtype=dtype)])
    return values[:, None].expand(16, 16).contiguous(), values[None].expand(16, 16).contiguous()


@pytest.mark.parametrize("name", BY_THE_CPU)
def test_what_the_cpu_computes_comes_back(name: str) -> None:
    assert_same(BY_THE_CPU[name], *_pair(torch.float32), by="cpu")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*ARITHMETIC, *OF_TENSORS])
def test_two_tensors(name: str, dtype: torch.dtype) -> None:
    function = {**ARITHMETIC, **OF_TENSORS}[name]
    assert_same(function, *_pair(dtype), strided=True)
    assert_same(function, *_pair(dtype))


@pytest.mark.parametrize("name", [*ARITHMETIC, *OF_TENSORS])
def test_gradients_and_broadcasting(name: str) -> None:
    function = {**ARITHMETIC, **OF_TENSORS}[name]
    for shapes in (((3, 4), (3, 4)), ((3, 1, 4), (2, 1)), ((3, 4), ()), ((), (3, 4)), ((0, 4), (1, 4))):
        left, right = floats(*shapes[0]).abs(), floats(*shapes[1], seed=1).abs()
        assert_same(function, left, right, backward=name not in WITHOUT_GRADIENT)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_tensor_and_a_number(name: str, dtype: torch.dtype) -> None:
    if name == "pow" and dtype is torch.bfloat16:
        pytest.skip("torch's CPU rounds the exponent first; see test_half_precision.py")
    for number in (2, 0.7, -3):
        assert_same(ARITHMETIC[name], _pair(dtype)[0], number, backward=name not in WITHOUT_GRADIENT)


@pytest.mark.parametrize("name", ["add", "sub", "rsub", "mul", "div trunc", "div floor", "floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(name: str, dtype: torch.dtype) -> None:
    left, right = integers(4, 5, dtype=dtype), integers(4, 5, low=1, dtype=dtype, seed=1)
    assert_same(ARITHMETIC[name], left, right)
    assert_same(ARITHMETIC[name], left, 3)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "remainder"])
def test_promotion(name: str) -> None:
    for left in MIXED:
        for right in MIXED:
            if name in ("sub", "pow", "remainder") and torch.bool in (left, right):
                continue  # not for booleans
            assert_same(ARITHMETIC[name], integers(4, 5, low=1, dtype=left), integers(4, 5, low=1, dtype=right))


@pytest.mark.parametrize("name", ["sub", "div", "pow", "remainder", "mul", "xlogy"])
def test_a_number_first(name: str) -> None:
    functions: dict[str, Callable[[torch.Tensor], Any]] = {
        "sub": lambda x: 2 - x,
        "div": lambda x: 2 / x,
        "pow": lambda x: 2**x,
        "remainder": lambda x: 2 % x,
        "mul": lambda x: 2 * x,
        "xlogy": lambda x: torch.xlogy(2, x),
    }
    assert_same(functions[name], floats(3, 5), backward=name != "remainder")
    assert_same(functions[name], integers(3, 5, low=1))


def test_xlogy_of_integers_is_cast_where_cann_does_not_refuse_it() -> None:
    x = integers(3, 5, low=1)
    assert torch.equal(x.npu().xlogy_(x.npu()).cpu(), torch.xlogy(x, x).to(x.dtype))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        x.npu().xlogy_(2.0)


NUMBERS = (torch.tensor(0.7), torch.tensor(3), torch.tensor(0.7, dtype=torch.float64))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "div floor", "floor_divide", "remainder", "rsub"])
def test_a_tensor_without_dimensions_may_stay_on_the_cpu(name: str, number: torch.Tensor) -> None:
    for tensor in (floats(3, 5), floats(3, 5, dtype=torch.bfloat16), integers(3, 5, low=1)):
        actual, expected = ARITHMETIC[name](tensor.npu(), number), ARITHMETIC[name](tensor, number)
        if tensor.dtype == torch.bfloat16:  # the CPU rounds the number first
            assert_as_near(actual, expected, ARITHMETIC[name](tensor.float(), number))
            continue
        assert_identical(actual, expected)
        assert_same(partial(ARITHMETIC[name], number), tensor)


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
def test_one_limit(name: str) -> None:
    assert_same(getattr(torch, name), floats(3, 5), 0.5, backward=True)
    assert_same(lambda x: getattr(x, f"{name}_")(0.5), floats(3, 5))


def test_add_and_relu_in_one_operator() -> None:
    add_relu, add_relu_ = torch.ops.aten._add_relu, torch.ops.aten._add_relu_
    assert_same(add_relu, floats(3, 5), floats(3, 5, seed=1), alpha=2)
    assert_same(add_relu_, floats(3, 5), floats(3, 5, seed=1))


def test_in_inference_mode() -> None:
    before = floats(3, 5).npu()
    with torch.inference_mode():
        assert_same(torch.add, floats(3, 5), 1)
        before.add_(1)
    assert_identical(before + 1, floats(3, 5) + 1 + 1)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    for dtype in FLOATS:
        assert_same(lambda a, b: getattr(a, name)(b), *_pair(dtype))
        assert_same(lambda a, b: getattr(a[1:, ::2], name)(b[1:, ::2]), *_pair(dtype))
        assert_same(lambda a, b: getattr(a, name)(b[0, 0]), *_pair(dtype))
        if name != "atan2_":
            assert_same(lambda a: getattr(a, name)(2), _pair(dtype)[0])


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers_times_a_fraction_are_cast_back(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """As InferTensorScalarDtype of CANN's aclnn_mul.cpp has it; the host code of a 950 and of Add refuses to cast."""
    values = integers(9, dtype=dtype)
    expected = torch.tensor([int(2.5 * int(each)) for each in values]).to(dtype)
    assert_identical(values.npu().mul_(2.5), expected)
    with pytest.raises(RuntimeError, match=r"161002(.|\n)*can't be cast"):
        values.npu().add_(2.5).cpu()
    monkeypatch.setattr(elementwise, "is_950", lambda: True)
    with pytest.raises(RuntimeError, match=r"161002(.|\n)*can't be cast"):
        values.npu().mul_(2.5).cpu()


def test_numbers_of_two_dtypes_are_not_close() -> None:
    with pytest.raises(RuntimeError, match=r"161002(.|\n)*Float did not match Half"):
        torch.isclose(floats(3).npu(), floats(3).half().npu()).cpu()


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_in_place(mode: str) -> None:
    assert_same(lambda a, b: a.div_(b, rounding_mode=mode), *_pair(torch.float32))
    assert_same(lambda a: a.div_(3, rounding_mode=mode), integers(3, 5))


@pytest.mark.parametrize("name", BITWISE)
def test_bits(name: str) -> None:
    for dtype in INTEGERS:
        left, right = integers(4, 5, dtype=dtype), integers(4, 5, low=0, high=5, dtype=dtype, seed=1)
        assert_same(getattr(torch, name), left, right)
        assert_same(getattr(torch, name), left, 3)
    if "shift" not in name:
        flags = integers(4, 5, low=0, high=2, dtype=torch.bool)
        assert_same(getattr(torch, name), flags, flags.flip(0))


def test_bits_in_place() -> None:
    for name in ("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"):
        assert_same(lambda a, b, name=name: getattr(a, name)(b), integers(9), integers(9, low=0, high=5))
        assert_same(lambda a, name=name: getattr(a, name)(3), integers(9))


@pytest.mark.parametrize("limits", [(-0.5, 0.5), (None, 0.5), (-0.5, None), (0.5, -0.5)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_clamp(limits: tuple[float | None, float | None], dtype: torch.dtype) -> None:
    assert_same(lambda x: x.clamp(*limits), _pair(dtype)[0], backward=True)
    assert_same(lambda x: x.clamp_(*limits), _pair(dtype)[0])
    tensors = [floats(16, 1, dtype=dtype) + each if each else None for each in limits]
    assert_same(torch.clamp, _pair(dtype)[0], *tensors, backward=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_three_operands(dtype: torch.dtype) -> None:
    a, b, c = (floats(3, 5, dtype=dtype, seed=seed) for seed in range(3))
    for name in ("addcmul", "addcdiv"):
        assert_same(getattr(torch, name), a, b, c, backward=True, value=0.5)
        assert_same(lambda a, b, c, name=name: getattr(a, f"{name}_")(b, c, value=0.5), a, b, c)
    for weight in (0.25, c):
        assert_same(torch.lerp, a, b, weight, backward=True)
        assert_same(lambda a, b, w: a.lerp_(b, w), a, b, weight)


def test_greatest_common_divisor() -> None:
    assert_same(torch.gcd, integers(4, 5), integers(4, 5, seed=1))


def test_complex_numbers() -> None:
    assert_same(torch.complex, floats(3, 5), floats(3, 5, seed=1))
    assert_same(torch.polar, floats(3, 5).abs(), floats(3, 5, seed=1))
    numbers = torch.complex(floats(3, 5), floats(3, 5, seed=1))
    for name in ("add", "sub", "mul", "div"):
        assert_same(getattr(torch, name), numbers, numbers.flip(0), backward=True)


def test_into_a_given_output() -> None:
    assert_same(lambda a, b: torch.add(a, b, out=a), floats(3, 5), floats(3, 5, seed=1))
    assert_same(lambda a, b: torch.mul(a, b, out=torch.empty_like(a)), floats(3, 5), floats(3, 5, seed=1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [torch.add, torch.sub, torch.mul, torch.div, torch.pow])
def test_a_wider_output_takes_results_in_the_dtype_of_the_inputs(function: Any, dtype: torch.dtype) -> None:
    x, y = floats(4, 5, dtype=dtype).abs() + 0.5, floats(4, 5, dtype=dtype, seed=1).abs() + 0.5
    found, mixed = torch.empty(4, 5, device="npu"), torch.empty(4, 5, device="npu")
    function(x.npu(), y.npu(), out=found)
    assert found.cpu().equal(function(x.float(), y.float()).to(dtype).float())
    function(x.npu(), y.float().npu(), out=mixed)
    torch.testing.assert_close(mixed.cpu(), function(x.float(), y.float()), rtol=1e-6, atol=1e-7)
