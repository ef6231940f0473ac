"""Whether the outcome of a record is borne out by what the record itself holds."""

from __future__ import annotations

from dataclasses import replace

from pytest_ascend.records.outcome import Disputed, Errored, Failed, Fallback, NotEmulated, Outcome, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack


def audited(record: ResultRecord, stack: Stack) -> ResultRecord:
    """Return the record with the outcome that its own evidence allows: nobody is taken at their word."""
    outcome = _contradicted(record, stack)
    return replace(record, outcome=replace(outcome, detail=record.outcome.detail)) if outcome else record


def _contradicted(record: ResultRecord, stack: Stack) -> Outcome | None:
    outcome = record.outcome
    if isinstance(outcome, NotEmulated) and not stack.emulated:
        return Errored(reason="recorded as not-emulated, on a device that is not emulated")
    if isinstance(outcome, (Waived, Disputed)) and not outcome.reason:
        return Errored(reason=f"{outcome.name} without a reason")
    return _unearned(record) if isinstance(outcome, Passed) else None


def _unearned(record: ResultRecord) -> Outcome | None:
    """Return what a recorded pass really is, or None where it was earned."""
    if any(not verdict["agrees"] for verdict in record.verdicts):
        return Failed(reason="recorded as passed, but a comparison disagrees")
    if not record.verdicts and not record.measurements:
        return Errored(reason="passed without comparing or measuring anything")
    if record.fallbacks:
        return Fallback(reason=f"computed on the CPU: {', '.join(record.fallbacks)}")
    return None
