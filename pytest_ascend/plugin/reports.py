"""What pytest's reports say of a case: its outcome and its record, as builtins, which survive any process."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from pytest_ascend.records.outcome import Errored, Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec

#: Names under which outcomes and records travel with pytest's reports, from other processes too.
OUTCOME_PROPERTY = "ascend_outcome"
RECORD_PROPERTY = "ascend"

#: How the terminal calls what pytest has no word for: category, letter, word.
STATUS = {
    "not-emulated": ("not-emulated", "n", "NOT-EMULATED"),
    "unsupported": ("unsupported", "u", "UNSUPPORTED"),
    "fallback": ("fallback", "b", "FALLBACK"),
    "flaky": ("flaky", "y", "FLAKY"),
    "errored": ("error", "E", "ERROR"),
    "waived": ("waived", "w", "WAIVED"),
}


def as_builtins(record: ResultRecord) -> dict[str, Any]:
    """Return a record as it travels; one that holds anything but data is errored, and says so."""
    try:
        found: dict[str, Any] = to_builtins(record)
    except TypeError as error:
        outcome = Errored(reason=f"the record of this case cannot be written: {error}"[:1000])
        found = to_builtins(ResultRecord.of(record.case, record.node_id, outcome))
    return found


def record_of(report: pytest.TestReport | pytest.CollectReport) -> ResultRecord | None:
    """Return the record that a report carries, None for none; it is parsed by whoever asks first."""
    properties: list[tuple[str, Any]] = getattr(report, "user_properties", [])
    for place, (name, found) in enumerate(properties):
        if name == RECORD_PROPERTY:
            record = codec.converted(found, ResultRecord, "record") if isinstance(found, dict) else found
            properties[place] = (name, record)
            return record if isinstance(record, ResultRecord) else None
    return None


def restate(report: pytest.TestReport, outcome: Outcome, *, is_short: bool = False) -> None:
    """Make pytest's report agree with the outcome: nothing but a pass may look like one, and no pass is a skip.

    ``is_short`` leaves tracebacks out, in which the user's code is not: what was found comes first, and is all.
    """
    report.user_properties.append((OUTCOME_PROPERTY, outcome.name))
    if outcome.name in ("not-emulated", "waived"):
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, outcome.reason)
    elif outcome.name != "passed" and (report.passed or is_short) and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{outcome.name}: {outcome.reason}\n{outcome.detail}".rstrip()


def restored(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Read a report that came as JSON, which knows no tuples."""
    data["user_properties"] = [(name, value) for name, value in data["user_properties"]]
    data["location"] = tuple(data["location"])
    if isinstance(data.get("longrepr"), list):
        data["longrepr"] = tuple(data["longrepr"])
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
    return report
