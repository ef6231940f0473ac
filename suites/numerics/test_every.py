"""Every input of a format in one call: the largest error of a function, and what has only one right result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.operators.accuracy import too_far
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

from .every import CASTS, PAIRED, pairs


@pytest.mark.ascend_cases("numerics", "accuracy")
def test_accuracy(
    case: Case, _ascend_device: Device, npu_device: torch.device, ascend_measure: Callable[[str, float], None]
) -> None:
    has_infinities = npu_device.type != "npu" or knows_infinities()
    chip = _ascend_device.chip()
    found, at, wrong = too_far(case.subject, case.dtype, npu_device, chip, has_infinities=has_infinities)
    ascend_measure("error_ulp", min(found, 1e9))
    ascend_measure("error_at", at)
    if wrong:
        raise Disagreement(wrong)


@pytest.mark.ascend_cases("numerics", "cast")
def test_cast(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    make, to = CASTS[case.subject]
    given = make()
    precision_compare(given.to(npu_device).to(to), given.to(to), standard="binary", name=case.subject)


@pytest.mark.ascend_cases("numerics", "pairs")
def test_pairs(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    function, (left, right) = PAIRED[case.subject], pairs(getattr(torch, case.dtype))
    actual = function(left.to(npu_device), right.to(npu_device))
    precision_compare(actual, function(left, right), standard="binary", name=case.subject)
