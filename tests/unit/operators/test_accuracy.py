"""``pytest-ascend accuracy``: the largest error over all numbers of a format, and where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.accuracy import (
    DTYPES,
    FUNCTIONS,
    FURTHER,
    IN_FLOAT32_ON_950,
    ROUNDED_ONCE,
    accuracy,
    errors,
    every_short,
    largest_error,
    limit_of,
    part_of_float32,
    worst,
)

T = torch.Tensor
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_computed_in_float32_and_rounded_once_is_off_by_half_an_ulp(dtype: str) -> None:
    assert 0.49 < float(worst("exp", dtype, CPU)["ulp"]) < 0.51


@pytest.mark.parametrize(("wrong", "ulp"), [(1 + 2**-7, 1.0), (float("nan"), "inf")])
def test_one_wrong_result_among_65_536_is_found(
    wrong: float, ulp: float | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def neg(x: T) -> T:
        found = -x
        return found if x.dtype is torch.float64 else torch.where(x == -1, torch.tensor(wrong, dtype=x.dtype), found)

    assert worst("neg", "bfloat16", CPU)["ulp"] == 0
    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: neg)
    assert worst("neg", "bfloat16", CPU) == {"ulp": ulp, "at": -1.0}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [1.0625, float("nan"), float("inf")])
def test_one_wrong_result_among_65_536_is_too_far_off(
    wrong: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[T] = []

    def tanh(x: T) -> T:  # the device's call comes first
        calls.append(x)
        found = x.tanh()
        return torch.where(x == 1, torch.tensor(wrong, dtype=x.dtype), found) if len(calls) == 1 else found

    every = every_short(getattr(torch, dtype))
    assert largest_error("tanh", [every], CPU, "Ascend910B1")[2] == ""
    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: tanh)
    found, at, said = largest_error("tanh", [every], CPU, "Ascend910B1")
    assert (found > 3, at) == (True, 1.0)
    assert "1 of 65,536 results are too far off" in said


def test_a_number_in_place_of_nan_counts_where_the_chip_has_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    def sqrt(x: T) -> T:
        return x.sqrt() if x.dtype is torch.float64 or len(x) != 2**16 else x.clamp(min=0).sqrt()

    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: sqrt)
    every = every_short(torch.float16)
    right, error = errors("sqrt", every, CPU)
    assert error[right.isnan() & ~every.isnan()].isinf().all()


def test_limits_are_those_of_what_is_known_of_a_function() -> None:
    assert limit_of("neg", "Ascend910B1") < 0.51
    assert (limit_of("tanh", "Ascend950DT"), limit_of("tanh", "Ascend910B1")) == (1.0, 3.0)
    assert {*ROUNDED_ONCE, *IN_FLOAT32_ON_950} < {*FUNCTIONS}


def test_both_forms_have_every_function() -> None:
    shown = CliRunner().invoke(accuracy, ["--format", "json"], catch_exceptions=False).output
    assert [each["function"] for each in json.loads(shown)["functions"]] == [*FUNCTIONS, *FURTHER]
    table = CliRunner().invoke(accuracy, [], catch_exceptions=False).output.splitlines()
    assert len(table) == len(FUNCTIONS) + len(FURTHER) + 2
    assert {line.count("|") for line in table} == {6}


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="nope"):
        CliRunner().invoke(accuracy, ["--device", "nope"], catch_exceptions=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_is_wrong_at_one_input_is_too_far_off(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: T) -> T:
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx: Any, *grads: T) -> T:
            (x,) = ctx.saved_tensors
            gradient = 1 - x.tanh() ** 2
            return grads[0] * (gradient * 1.25).where((x == 0.5) & (x.dtype != torch.float64), gradient)

    every = [every_short(getattr(torch, dtype))]
    assert largest_error("tanh", every, CPU, "Ascend910B1", is_gradient=True)[2] == ""
    wrong = iter([Tanh.apply, torch.tanh, torch.tanh])  # the device's call comes first

    def tanh(x: T) -> T:
        return next(wrong)(x)

    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: tanh)
    said = largest_error("tanh", every, CPU, "Ascend910B1", is_gradient=True)[2]
    assert "1 of 65,536 results are too far off; at 0.5 " in said


def test_a_gradient_whose_square_saturates_is_judged_where_there_are_no_infinities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Atan(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: T, off: float) -> T:
            ctx.save_for_backward(x)
            ctx.off = off
            return x.atan()

        @staticmethod
        def backward(ctx: Any, *grads: T) -> tuple[T, None]:
            (x,) = ctx.saved_tensors
            return (grads[0] / (x.square().clamp(max=65504) + 1)).where(x != 300, ctx.off), None

    def said(off: float, *, has_infinities: bool) -> str:
        functions = iter([lambda x: Atan.apply(x, off), torch.atan, torch.atan])  # the device's call comes first

        def atan(x: T) -> T:
            return next(functions)(x)

        monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: atan)
        every = [every_short(torch.float16)]
        return largest_error("atan", every, CPU, "Ascend310P3", has_infinities=has_infinities, is_gradient=True)[2]

    assert said(1.5e-5, has_infinities=False) == ""
    assert said(1.5e-5, has_infinities=True), "a number of this size is beyond its limit elsewhere"
    assert "1 of 65,536 results are too far off; at 300 " in said(0.25, has_infinities=False)


def test_parts_of_float32_have_each_number_once() -> None:
    bits = torch.cat([part_of_float32(part, parts=2**16) for part in range(2**16)[:: 2**12]])
    assert len(bits.view(torch.int32).unique()) == 16 * 2**16
    first = part_of_float32(0, parts=2**16).view(torch.int32)
    assert torch.equal(first.long() >> 16, torch.arange(-(2**15), 2**15))
