"""Planted errors that any run's judge has to see."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.plugin.self_test import CORRECT, PLANTED, _expected, score


def test_the_default_judge_sees_all_and_accuses_nothing() -> None:
    found = score("")
    assert found.detected == found.planted
    assert found.missed == ()


@pytest.mark.parametrize(
    "standard", ["mere-mare", "mixed", "benchmark-ratio-L0", "ulp", "thousandth", "torch", "binary"]
)
def test_any_standard_can_be_scored(standard: str) -> None:
    assert score(standard).detected >= 13


@pytest.mark.parametrize("dtype", CORRECT)
def test_what_is_expected_is_of_both_signs_and_no_coarser_than_the_result(dtype: torch.dtype) -> None:
    for name in ("", *PLANTED):
        expected = _expected(dtype, name)
        assert expected.numel() == 1000
        assert expected.dtype == (torch.float64 if dtype.is_floating_point else dtype)
        assert {bool(each) for each in (expected > 0).view(-1)} == {True, False}
        assert bool(expected.isnan().any()) == ("NaN is dropped" in name and dtype.is_floating_point)
        assert bool(expected.isinf().any()) == ("infinity" in name and dtype.is_floating_point)
