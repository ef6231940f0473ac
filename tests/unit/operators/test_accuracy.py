"""``pytest-ascend accuracy``: the largest error over all numbers of a format, and where it is."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.accuracy import DTYPES, FUNCTIONS, accuracy, worst

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


def test_both_forms_have_every_function() -> None:
    shown = CliRunner().invoke(accuracy, ["--format", "json"], catch_exceptions=False).output
    assert [each["function"] for each in json.loads(shown)["functions"]] == [*FUNCTIONS]
    table = CliRunner().invoke(accuracy, [], catch_exceptions=False).output.splitlines()
    assert len(table) == len(FUNCTIONS) + 2
    assert {line.count("|") for line in table} == {6}


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="nope"):
        CliRunner().invoke(accuracy, ["--device", "nope"], catch_exceptions=False)
