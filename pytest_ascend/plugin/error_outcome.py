"""What ended a case before its time: the error as an outcome, with what it means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_ascend.device import Device
from pytest_ascend.diagnosis import Diagnosis, diagnose
from pytest_ascend.diagnosis.codes import MEMORY
from pytest_ascend.errors import AscendError
from pytest_ascend.records.outcome import Errored, Failed, NotRun, Outcome, Unsupported
from pytest_ascend.run.case_context import CaseContext
from pytest_ascend.run.outcomes import classify


def interrupt(
    trial: CaseContext, error: BaseException, report: pytest.TestReport, device: Device, missing: Sequence[str]
) -> None:
    """Note in ``trial`` what ``error`` made of it; ``missing`` are operators that the emulated device lacked."""
    trial.interrupted = _outcome(error, report, device, missing)
    _diagnose(trial, error, device.kind)


def _outcome(error: BaseException, report: pytest.TestReport, device: Device, missing: Sequence[str]) -> Outcome:
    if isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
        return NotRun(reason=f"skipped: {error}")
    if isinstance(error, pytest.fail.Exception):
        return Failed(reason=str(error), detail=report.longreprtext)
    outcome = classify(error, emulated=device.emulated, missing=missing)
    return Errored(reason=outcome.reason, detail=report.longreprtext) if outcome.name == Errored.name else outcome


def _diagnose(trial: CaseContext, error: BaseException, device_type: str) -> None:
    """Say what an error means, in the record and before the raw message, which stays."""
    outcome = trial.interrupted
    if isinstance(error, AscendError) or not isinstance(outcome, (Errored, Unsupported)):
        return
    found = _diagnosis(error, device_type)
    trial.diagnosis = found.to_dict()
    said = "\n".join(found.lines())
    trial.interrupted = type(outcome)(reason=f"{found.kind}: {outcome.reason}", detail=f"{said}\n\n{outcome.detail}")


def _diagnosis(error: BaseException, device_type: str) -> Diagnosis:
    name, message = type(error).__name__, str(error)
    found = diagnose(name, message)
    if found.kind != MEMORY:
        return found
    from pytest_ascend.diagnosis import memory  # noqa: PLC0415  (needed in this case only)

    return diagnose(name, message, memory.findings(error, device_type))
