"""What a fused form has to save is judged by what can be told, and each form has its cases."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_ascend.performance.verdict import estimate
from suites.fusion import FORMS, PATTERNS
from suites.fusion.test_fusion import (
    complaint_about_loss,
    complaint_about_memory,
    complaint_about_time,
    precision_loss,
    saved,
)


def test_every_pattern_has_a_form() -> None:
    assert {form.pattern for form in FORMS.values()} == PATTERNS.keys()


def test_a_loss_is_a_share_of_the_largest_value() -> None:
    plain = torch.tensor([0.0, -200.0])
    assert precision_loss(plain + torch.tensor([0.03, 0.0]), plain) == pytest.approx(1.5e-4)
    assert precision_loss(torch.tensor([math.nan, 0.0]), plain) == math.inf
    assert precision_loss(torch.tensor([math.inf, 0.0]), plain) == math.inf


@pytest.mark.parametrize(("loss", "is_told"), [(0.0, False), (1e-4, False), (1.1e-4, True), (math.inf, True)])
def test_too_large_a_loss_is_told(loss: float, is_told: bool) -> None:
    assert bool(complaint_about_loss(loss)) is is_told


@pytest.mark.parametrize(
    ("fused_us", "is_told"),
    [pytest.param(60.0, False, id="saves 40 %"), pytest.param(90.0, True, id="saves 10 %")],
)
def test_time_is_told_where_too_little_is_saved(fused_us: float, is_told: bool) -> None:
    wobble = [1 + 0.001 * (number % 7) for number in range(40)]
    share, low, high = saved(estimate([fused_us * each for each in wobble], [100.0 * each for each in wobble]))
    assert share == pytest.approx(1 - fused_us / 100, abs=0.01)
    assert low <= share <= high
    assert bool(complaint_about_time(share, low, high)) is is_told


def test_what_noise_hides_is_not_told() -> None:
    assert not complaint_about_time(0.2, -0.1, 0.45)


@pytest.mark.parametrize(("fused", "is_told"), [(100, False), (120, False), (121, True)])
def test_too_much_memory_is_told(fused: int, is_told: bool) -> None:
    assert bool(complaint_about_memory(fused, 100)) is is_told
