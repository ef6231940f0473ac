"""What PyTorch refuses on the CPU is refused on the device with the same kind of error, and the device survives."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.device.probe import known_answer
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import NotEmulated, Unsupported
from pytest_ascend.run.comparing import PrecisionCompare, refusal
from pytest_ascend.run.outcomes import classify

from . import BY_CASE, Maker


@pytest.mark.ascend_cases("errors")
def test_refused(
    case: Case, npu_device: torch.device, _ascend_device: Device, precision_compare: PrecisionCompare
) -> None:
    name, call = BY_CASE[case]
    wanted, found = (refusal(partial(call, Maker(each)), each) for each in (torch.device("cpu"), npu_device))
    assert wanted is not None, f"PyTorch itself does not refuse: {name}"
    assert found is not None, f"{name}: nothing was raised; the CPU raises {described(wanted)}"
    outcome = classify(found, emulated=_ascend_device.emulated)
    if isinstance(outcome, (Unsupported, NotEmulated)) and not isinstance(wanted, NotImplementedError):
        own = classify(wanted, emulated=False)
        if not isinstance(own, Unsupported):  # the CPU's error is not about support, so the device lacks the operator
            raise found
    # Callers may expect the CPU's type; NotImplementedError is also a RuntimeError.
    kind = RuntimeError if isinstance(wanted, RuntimeError) else type(wanted)
    assert isinstance(found, kind), f"{name}: {described(found)}; the CPU raises {described(wanted)}"
    precision_compare(known_answer(npu_device), "", name=f"the device after {name}")


def described(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
