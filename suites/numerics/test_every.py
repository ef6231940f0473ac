"""Every input of a format in one call: the largest error of a function, and what has only one right result."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.operators.accuracy import too_far
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

from .every import CASTS, inputs_of, integers


@pytest.mark.ascend_cases("numerics", "accuracy", "gradient")
def test_accuracy(case: Case, _ascend_device: Device, npu_device: torch.device, ascend_measure: Measure) -> None:
    found, at, wrong = too_far(
        case.subject,
        inputs_of(case.dtype, is_sampled=_ascend_device.emulated or npu_device.type == "cpu"),
        npu_device,
        _ascend_device.chip(),
        has_infinities=npu_device.type != "npu" or knows_infinities(),
        is_gradient=case.property == "gradient",
    )
    ascend_measure("error_ulp", min(found, 1e9))
    ascend_measure("error_at", at)
    if wrong:
        raise Disagreement(wrong)


@pytest.mark.ascend_cases("numerics", "cast")
def test_cast(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    make, to = CASTS[case.subject]
    given = make()
    precision_compare(given.to(npu_device).to(to), given.to(to), standard="binary", name=case.subject)


@pytest.mark.ascend_cases("numerics", "pairs", "integers")
def test_integers(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    function, given = integers(case)
    actual = function(*(each.to(npu_device) for each in given))
    precision_compare(actual, function(*given), standard="binary", name=case.subject)
