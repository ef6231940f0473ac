"""``pytest-ascend accuracy``: the largest error over all numbers of a format, and where it is."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.accuracy import (
    DTYPES,
    FUNCTIONS,
    IN_FLOAT32_ON_950,
    ROUNDED_ONCE,
    accuracy,
    errors,
    limit_of,
    too_far,
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

    assert too_far("tanh", dtype, CPU, "Ascend910B1")[2] == ""
    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: tanh)
    found, at, said = too_far("tanh", dtype, CPU, "Ascend910B1")
    assert (found > 3, at) == (True, 1.0)
    assert "1 of 65,536 results are too far off" in said


def test_a_number_in_place_of_nan_counts_where_the_chip_has_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    def sqrt(x: T) -> T:
        return x.sqrt() if x.dtype is torch.float64 or len(x) != 2**16 else x.clamp(min=0).sqrt()

    monkeypatch.setattr("pytest_ascend.operators.accuracy.resolve", lambda _: sqrt)
    every, error, right = errors("sqrt", "float16", CPU)
    assert error[right.isnan() & ~every.isnan()].isinf().all()


def test_limits_are_those_of_what_is_known_of_a_function() -> None:
    assert limit_of("neg", "Ascend910B1") < 0.51
    assert (limit_of("tanh", "Ascend950DT"), limit_of("tanh", "Ascend910B1")) == (1.0, 3.0)
    assert {*ROUNDED_ONCE, *IN_FLOAT32_ON_950} < {*FUNCTIONS}


def test_both_forms_have_every_function() -> None:
    shown = CliRunner().invoke(accuracy, ["--format", "json"], catch_exceptions=False).output
    assert [each["function"] for each in json.loads(shown)["functions"]] == [*FUNCTIONS]
    table = CliRunner().invoke(accuracy, [], catch_exceptions=False).output.splitlines()
    assert len(table) == len(FUNCTIONS) + 2
    assert {line.count("|") for line in table} == {6}


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="nope"):
        CliRunner().invoke(accuracy, ["--device", "nope"], catch_exceptions=False)
