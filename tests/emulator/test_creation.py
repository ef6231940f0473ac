"""Constants, sequences and copies are the same on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch_npu

from .both import FLOATS, INTEGERS, assert_identical, assert_refused, assert_same, floats, integers

CREATED: dict[str, Callable[..., torch.Tensor]] = {
    "zeros": lambda **options: torch.zeros(2, 3, **options),
    "ones": lambda **options: torch.ones(2, 3, **options),
    "full": lambda **options: torch.full((2, 3), 1, **options),
    "arange": lambda **options: torch.arange(7, **options),
    "arange with a step": lambda **options: torch.arange(1, 20, 3, **options),
    "linspace": lambda **options: torch.linspace(0, 9, 4, **options),
    "eye": lambda **options: torch.eye(3, 5, **options),
    "tensor": lambda **options: torch.tensor([[1, 0], [3, 2]], **options),
    "scalar_tensor": lambda **options: torch.scalar_tensor(1, **options),
    "nothing": lambda **options: torch.zeros(0, 3, **options),
}

ALL = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float64)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", CREATED)
def test_creation(name: str, dtype: torch.dtype) -> None:
    try:
        created = CREATED[name](dtype=dtype, device="npu")
    except RuntimeError as error:
        assert_refused(error)
    else:
        assert_identical(created, CREATED[name](dtype=dtype))


def test_sequences_of_fractions() -> None:
    assert_identical(torch.arange(0.5, 9, 0.7, device="npu"), torch.arange(0.5, 9, 0.7))
    assert_identical(torch.linspace(-1, 1, 77, device="npu"), torch.linspace(-1, 1, 77))
    assert_identical(torch.logspace(-1, 1, 7, device="npu"), torch.logspace(-1, 1, 7))


def test_filling_in_place() -> None:
    assert_same(lambda x: x.fill_(2.5), floats(3, 4), strided=True)
    assert_same(lambda x, value: x.fill_(value), floats(3, 4), torch.tensor(1.5), strided=True)
    assert_same(lambda x: x.zero_(), floats(3, 4), strided=True, by="any")
    assert_same(lambda x: torch.zeros_like(x) + torch.ones_like(x) + torch.full_like(x, 3), floats(3, 4))


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.parametrize(("source", "target"), [*product(ALL, ALL)])
def test_copies_convert(source: torch.dtype, target: torch.dtype) -> None:
    values = integers(3, 4, low=0, high=100).to(source)
    assert_same(lambda x: torch.zeros(3, 4, dtype=target, device=x.device).copy_(x), values, strided=True, by="any")
    assert_same(lambda x: x.to(target) if target != torch.float64 else x, values, by="any")


def test_numbers_that_do_not_fit() -> None:
    values = torch.tensor([1e5, -1e5, 1e-9, float("inf"), float("nan"), 65519.0, 65520.0, 3.0000001])
    assert_same(lambda x: x.half(), values, by="any")
    assert_same(lambda x: x.bfloat16(), values, by="any")
    assert_same(lambda x: x.bool(), values, by="any")


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4,), ()])
def test_copies_broadcast(shape: tuple[int, ...]) -> None:
    assert_same(lambda x, y: x.copy_(y), floats(3, 4), floats(*shape, seed=1), strided=True, by="any")


def test_copies_from_and_to_any_layout() -> None:
    assert_same(lambda x: x.t()[1:5:2].clone(), floats(6, 8), by="any")
    assert_same(lambda x, y: x.t()[1:5:2].copy_(y), floats(6, 8), floats(2, 6, seed=1), by="any")
    assert_same(lambda x: x.permute(3, 1, 0, 2).contiguous(), floats(2, 3, 4, 5), by="any")
    assert_same(lambda x: x.expand(5, 3, 4).clone(), floats(3, 4), by="any")
    assert_same(lambda x: x.permute(5, 4, 3, 2, 1, 0).contiguous(), floats(2, 1, 3, 2, 2, 1), by="any")


def test_a_conversion_has_a_gradient() -> None:
    assert_same(lambda x: x.half().float().bfloat16(), floats(3, 4), backward=True, by="any")


def test_npu_dtype_cast() -> None:
    x = floats(3, 4).npu().requires_grad_()
    cast = torch_npu.npu_dtype_cast(x, torch.float16)
    cast.sum().backward()
    assert_identical(cast, floats(3, 4).half())
    assert_identical(x.grad, torch.ones(3, 4))


@pytest.mark.filterwarnings("ignore:torch.range is deprecated:UserWarning")
def test_range() -> None:
    assert_identical(torch.range(0, 5, 2, device="npu"), torch.range(0, 5, 2))


def test_complex_numbers() -> None:
    assert_same(torch.complex, floats(3, 4), floats(3, 4, seed=1), by="any")
    assert_same(lambda x: torch.view_as_real(torch.view_as_complex(x).clone()), floats(3, 2), by="any")
