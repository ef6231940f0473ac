"""Every operator of PyTorch: one case per operator, dtype and property, with all samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.exploring import FOUND
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.operator import PROPERTIES
from pytest_ascend.operators.sweep import CALLS, note
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import PrecisionCompare

from .table import target_of


@pytest.fixture
def target(
    case: Case,
    npu_device: torch.device,
    golden_store: GoldenStore,
    _ascend_reproduce: Callable[..., None],
    _ascend_sweep_seed: str,
    pytestconfig: pytest.Config,
) -> Target:
    level = pytestconfig.getoption("ascend_level") or "standard"
    made = target_of(case, npu_device, golden_store, _ascend_sweep_seed, level)
    _ascend_reproduce(partial(program, made), saves=True)
    return made


def _test_of(*properties: str) -> Callable[..., None]:
    @pytest.mark.ascend_cases("ops", *properties)
    def test(target: Target, precision_compare: PrecisionCompare, ascend_measure: Measure) -> None:
        check(target, precision_compare)
        note(target.varied, ascend_measure)

    made: Callable[..., None] = test
    return made


# test_forward, test_in_place ...; a single test for all generated calls.
globals().update({f"test_{each.replace('-', '_')}": _test_of(each) for each in PROPERTIES if each not in CALLS})
test_sweep = _test_of(*CALLS, FOUND)
