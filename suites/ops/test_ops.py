"""Every operator of PyTorch: one case per operator, dtype and property, with all samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.sweep import note
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from .targets import target_of


@pytest.fixture
def target(
    case: Case,
    npu_device: torch.device,
    golden_store: GoldenStore,
    _ascend_reproduce: Callable[..., None],
    _ascend_sweep_seed: str,
    pytestconfig: pytest.Config,
) -> Target:
    """Return the operator under test."""
    level = pytestconfig.getoption("ascend_level") or "standard"
    made = target_of(case, npu_device, golden_store, _ascend_sweep_seed, level)
    _ascend_reproduce(partial(program, made), saves=True)
    return made


@pytest.mark.ascend_cases("ops", "forward")
def test_forward(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "shapes")
def test_shapes(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "promotion")
def test_promotion(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "special")
def test_special(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "layout")
def test_layout(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "backward")
def test_backward(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "backward-layout")
def test_backward_layout(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "out")
def test_out(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "in-place")
def test_in_place(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "repeat")
def test_repeat(target: Target, precision_compare: PrecisionCompare) -> None:
    check(target, precision_compare)


@pytest.mark.ascend_cases("ops", "sweep", "sweep-more", "found")
def test_sweep(
    target: Target, precision_compare: PrecisionCompare, ascend_measure: Callable[[str, float], None]
) -> None:
    check(target, precision_compare)
    note(target.varied, ascend_measure)
