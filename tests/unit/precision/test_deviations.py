"""A wrong result that is right on some chip is called so, and nothing beside it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend.precision import compare
from pytest_ascend.precision import diagnosis as module
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES, Verdict, named_in
from pytest_ascend.run.reference import cpu_reference

T = torch.Tensor
ALL = frozenset({SATURATES, FLUSHES, HALVES})


@pytest.fixture(autouse=True)
def _chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge as on a chip that has every one of them."""
    monkeypatch.setattr(module, "of_chip", lambda: (ALL, ()))


def saturated(x: T) -> T:
    """Do as CANN documents of the mode: Inf is the largest number, NaN zero."""
    largest = torch.finfo(x.dtype).max
    return torch.where(x.isnan(), torch.zeros_like(x), x.clamp(-largest, largest))


def flushed(x: T) -> T:
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros_like(x), x)


def in_halves(a: T, b: T) -> T:
    return a.half().float() @ b.half().float()


def deviations(verdict: Verdict) -> frozenset[str]:
    assert not verdict.agrees
    return named_in(verdict.pattern)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_numbers_for_infinities_and_nan_are_saturation(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 200.0, -2.0, -200.0, 3.0]).to(dtype)
    for function in (torch.exp, torch.log, lambda x: 1 / (x - x), lambda x: x.exp() * x):
        verdict = compare(saturated(function(x)), function(x.double()), reference_runs=function(x))
        assert verdict.agrees or deviations(verdict) == {SATURATES}
    assert deviations(compare(saturated(torch.log(x)), torch.log(x.double()))) == {SATURATES}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * torch.tensor([1, -1, 1]),  # another sign than that of the infinity
        lambda x: x * torch.tensor([1, 1, 1.1]),  # a wrong number beside it
        lambda x: x * torch.tensor([torch.inf, 1, 1]),  # an infinity where there is none
    ],
)
def test_what_else_is_wrong_is_not_explained(change: Callable[[T], T]) -> None:
    x = torch.tensor([1.0, 100.0, 3.0])
    actual = change(saturated(x.exp()))
    assert deviations(compare(actual, x.double().exp().where(x < 90, torch.inf), reference_runs=x.exp())) == set()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_zeros_for_subnormal_numbers_are_flushed(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    x = torch.tensor([tiny, -tiny, 3 * tiny, 1.0], dtype=dtype)
    assert deviations(compare(flushed(x / 4), x.double() / 4, reference_runs=x / 4)) == {FLUSHES}
    assert deviations(compare(torch.zeros_like(x), x.double() / 4, reference_runs=x / 4)) == set()  # normal ones, too


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [(5, 17, 7), (1, 64, 1), (64, 300, 64)])
def test_products_of_rounded_factors_are_called_so(seed: int, sizes: tuple[int, int, int]) -> None:
    torch.manual_seed(seed)
    n, k, m = sizes
    a, b = torch.randn(n, k), torch.randn(k, m)
    expected = cpu_reference(torch.matmul, a, b)
    assert deviations(compare(in_halves(a, b), expected)) == {HALVES}
    wrong = in_halves(a, b)
    wrong[0, 0] += 0.5 * k**0.5
    assert deviations(compare(wrong, expected)) == set()
    assert deviations(compare(in_halves(a, b) * 1.1 + 0.1, expected)) == set()


def test_half_precision_itself_is_no_deviation_of_half_precision() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert deviations(compare(x.half() * 1.01, x.double(), reference_runs=x.half())) == set()


def test_several_that_explain_all_together_are_named() -> None:
    torch.manual_seed(1)
    a, b = torch.rand(8, 16) + 1, torch.rand(16, 8)
    a[0] *= 2.0**125
    scale = torch.ones(8, 1)
    scale[0] = 2.0**-125
    actual = saturated(in_halves(a * scale, b) / scale)
    reference_runs = a @ b
    assert reference_runs[0].isinf().any()
    assert deviations(compare(actual, a.double() @ b.double(), reference_runs=reference_runs)) == {SATURATES, HALVES}


def test_a_whole_keeps_what_explains_each_part() -> None:
    x, y = torch.tensor([100.0]), torch.tensor([1e-38])
    verdict = compare([saturated(x.exp()), flushed(y / 4)], [x.double().exp() * 1e300, y.double() / 4])
    assert [named_in(leaf.pattern) for leaf in verdict.leaves] == [{SATURATES}, {FLUSHES}]


def test_a_deviation_is_named_only_on_a_chip_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # this is the CPU
    a, b = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
    assert deviations(compare(in_halves(a, b), cpu_reference(torch.matmul, a, b))) == set()
    monkeypatch.setattr(module, "of_chip", lambda: ({SATURATES}, ()))
    assert deviations(compare(in_halves(a, b), cpu_reference(torch.matmul, a, b))) == set()
    assert deviations(compare(saturated(torch.tensor([100.0]).exp()), torch.tensor([1e300], dtype=torch.float64))) == {
        SATURATES
    }
