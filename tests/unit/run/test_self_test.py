"""Planted errors that any run's judge has to see."""

from __future__ import annotations

import pytest

from pytest_ascend.run.self_test import score


def test_the_default_judge_sees_all_and_accuses_nothing() -> None:
    found = score("")
    assert found.detected == found.planted
    assert found.missed == ()


@pytest.mark.parametrize(
    "standard", ["mere-mare", "mixed", "benchmark-ratio-L0", "ulp", "thousandth", "torch", "binary"]
)
def test_any_standard_can_be_scored(standard: str) -> None:
    assert score(standard).detected >= 13
