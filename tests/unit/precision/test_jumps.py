"""One element at a jump says nothing of the others; there, a correct device may be on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.precision import compare
from pytest_ascend.run.reference import cpu_reference

T = torch.Tensor
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def gradient_of_where(x: T) -> T:
    x = x.detach().clone().requires_grad_()
    torch.autograd.backward(torch.where(x * 0.7 > 0.1, x * 2, -x).sum())
    assert x.grad is not None
    return x.grad


def floored(x: T) -> T:
    return (x / 0.1).floor_()


#: A function that jumps, and a wrong result made of the right one.
JUMPS: dict[str, tuple[Callable[[T], T], Callable[[T], T]]] = {
    "floor": (lambda x: (x / 0.1).floor(), lambda r: r - 1),
    "floor_": (floored, lambda r: r - 1),
    "ceil": (lambda x: (x * 0.7).ceil(), lambda r: r + 1),
    "round": (lambda x: (x / 0.3).round(), torch.zeros_like),
    "trunc": (lambda x: (x / 0.3).trunc(), lambda r: r - 1),
    "long": (lambda x: (x / 0.1).long(), lambda r: r + 1),
    "frac": (lambda x: (x * 7.3).frac(), torch.zeros_like),
    "sign": (lambda x: (x - x.mean()).sign(), lambda r: -r),
    "remainder": (lambda x: torch.remainder(x * 3, 0.3), torch.zeros_like),
    "fmod": (lambda x: torch.fmod(x * 3, 0.3), torch.zeros_like),
    "floor_divide": (lambda x: x * 3 // 0.3, lambda r: r + 1),
    "greater": (lambda x: x * 0.7 > 0.1, lambda r: ~r),
    "where": (lambda x: torch.where(x * 0.7 > 0.1, x * 2, -x), lambda r: -r),
    "heaviside": (lambda x: torch.heaviside(x * 0.3 - 0.1, torch.ones((), dtype=x.dtype)), lambda r: 1 - r),
    "argmax": (lambda x: (x * 0.7).argmax(-1), torch.zeros_like),
    "bucketize": (lambda x: torch.bucketize(x * 0.7, torch.linspace(-2, 2, 100, dtype=x.dtype)), lambda r: r + 1),
    "quantized": (lambda x: (x / 0.07).round().clamp(-128, 127) * 0.07, torch.zeros_like),
    "gradient of where": (gradient_of_where, lambda r: -r),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", JUMPS)
def test_right_results_pass_and_wrong_ones_do_not(name: str, dtype: torch.dtype) -> None:
    function, wrong = JUMPS[name]
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected, right = cpu_reference(function, x), function(x)
    assert compare(right, expected).agrees
    assert not compare(wrong(right), expected).agrees
    one_row = right.clone()
    one_row[7] = wrong(right)[7]
    assert not compare(one_row, expected).agrees


def test_elements_at_a_jump_may_be_on_either_side_and_nowhere_else() -> None:
    x = torch.arange(1, 65).float() / 10  # x / 0.1 is next to a whole number: a device may be on either side
    expected = cpu_reference(lambda v: (v / 0.1).floor(), x)
    whole = torch.arange(1, 65).float()
    assert compare(whole, expected).agrees
    assert compare(whole - torch.arange(64) % 2, expected).agrees
    assert not compare(whole - 2, expected).agrees
    assert not compare(whole - 0.5, expected).agrees


@pytest.mark.parametrize("function", [torch.floor, torch.sign, lambda x: x > 0])
def test_a_number_that_is_known_exactly_has_one_side(function: Callable[[T], Any]) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    x[5] = 1e-8
    expected = cpu_reference(function, x)
    assert compare(function(x), expected).agrees
    x[5] = -1e-8
    assert not compare(function(x), expected).agrees


def test_a_sum_over_jumps_keeps_the_errors_of_its_reference_runs() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = cpu_reference(lambda v: (v / 0.1).floor().sum(-1), x)
    assert compare((x / 0.1).floor().sum(-1), expected).agrees
