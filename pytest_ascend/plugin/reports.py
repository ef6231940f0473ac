"""Records in pytest's reports, how errors change them, and the output for JUnit XML and pytest-html.

Outcome and record are passed on as builtins, which can be sent between any processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pytest
from msgspec import to_builtins
from pytest_html import extras

from pytest_ascend.device import Device
from pytest_ascend.diagnosis import diagnose
from pytest_ascend.environment.codes import MEMORY
from pytest_ascend.export import formats
from pytest_ascend.records.outcome import Errored, Failed, NotJudged, NotRun, Outcome, Unsupported
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.run.case_context import CaseContext
from pytest_ascend.run.outcomes import classify
from pytest_ascend.runlog import codec
from pytest_ascend.system.errors import AscendError
from pytest_ascend.system.text import one_line
from pytest_ascend.verdict.columns import columns_of

#: Longest reason, in characters, taken from a test's own message.
REASON_CHARACTERS = 300
#: Property names of outcomes and records in pytest's reports, which may come from other processes.
OUTCOME_PROPERTY = "ascend_outcome"
RECORD_PROPERTY = "ascend"
_LETTERS = {"n": "not-emulated", "u": "unsupported", "b": "fallback", "y": "flaky", "w": "waived"}
#: Terminal names of outcomes that pytest does not have: category, letter, word.
STATUS = {"errored": ("error", "E", "ERROR")} | {
    name: (name, letter, name.upper()) for letter, name in _LETTERS.items()
}


def as_builtins(record: ResultRecord) -> dict[str, Any]:
    """Return a record as builtins; a record with anything but data becomes errored, with the reason."""
    try:
        found: dict[str, Any] = to_builtins(record)
    except TypeError as error:
        outcome = Errored(reason=f"the record of this case cannot be written: {error}"[:1000])
        found = to_builtins(ResultRecord.of(record.case, record.node_id, outcome))
    return found


def record_of(report: pytest.TestReport | pytest.CollectReport) -> ResultRecord | None:
    """Return the record in a report, None without one; the first call parses it."""
    properties: list[tuple[str, Any]] = getattr(report, "user_properties", [])
    for place, (name, found) in enumerate(properties):
        if name == RECORD_PROPERTY:
            record = codec.converted(found, ResultRecord, "record") if isinstance(found, dict) else found
            properties[place] = (name, record)
            return record if isinstance(record, ResultRecord) else None
    return None


def restate(report: pytest.TestReport, outcome: Outcome, *, is_short: bool = False) -> None:
    """Make pytest's report agree with the outcome: only a pass looks like a pass, and a pass never like a skip.

    ``is_short`` omits tracebacks without the user's code and shows only the finding.
    """
    report.user_properties.append((OUTCOME_PROPERTY, outcome.name))
    if outcome.name == "not-judged":
        return  # pytest's report already agrees
    if outcome.name in ("not-emulated", "waived"):
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, outcome.reason)
    elif outcome.name != "passed" and (report.passed or is_short) and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{outcome.name}: {outcome.reason}\n{outcome.detail}".rstrip()


def restored(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Return a report that was sent as JSON, which has no tuples."""
    data["user_properties"] = [(name, value) for name, value in data["user_properties"]]
    data["location"] = tuple(data["location"])
    if isinstance(data.get("longrepr"), list):
        data["longrepr"] = tuple(data["longrepr"])
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
    return report


class Integrations:
    """Passes results to other plugins, in the process that collects them."""

    _columns = columns_of("pytest-html")

    def __init__(self) -> None:
        self._latest: tuple[str, ResultRecord] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Replace the record by properties that other plugins can read."""
        record = record_of(report)
        if record is None:
            return
        self._latest = (report.nodeid, record)
        kept = [each for each in report.user_properties if each[0] not in (RECORD_PROPERTY, OUTCOME_PROPERTY)]
        report.user_properties = [*kept, *formats.properties(record)]
        if text := formats.attachment(record):
            given = getattr(report, "extras", ())
            setattr(report, "extras", [*given, extras.text(text, name="ascend")])  # noqa: B010 - pytest-html's own

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Add our columns before the links."""
        cells[-1:-1] = [f"<th>{each.title['en']}</th>" for each in self._columns]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Fill our columns, and show the test's name as text, whatever it contains."""
        node_id = report.nodeid if report.when == "call" else f"{report.nodeid}::{report.when}"
        cells[1] = f'<td class="col-testId">{escape(one_line(node_id))}</td>'
        record = self._latest[1] if self._latest and self._latest[0] == report.nodeid else None
        found = [each.shown(record, "") if record else "" for each in self._columns]
        cells[-1:-1] = [f"<td>{escape(one_line(each))}</td>" for each in found]


def note_error(
    context: CaseContext, error: BaseException, report: pytest.TestReport, device: Device, missing: Sequence[str]
) -> None:
    """Set the outcome of an exception in ``context``; ``missing`` are the operators absent from the emulated device."""
    context.error_outcome = outcome = _outcome(context, error, report, device, missing)
    if isinstance(error, AscendError) or not isinstance(outcome, (Errored, Unsupported)):
        return
    # Put the explanation before the raw message, which is kept.
    found = diagnose(type(error).__name__, str(error))
    if found.kind == MEMORY:
        from pytest_ascend.diagnosis import memory  # noqa: PLC0415  (needed in this case only)

        found = diagnose(type(error).__name__, str(error), memory.findings(error, device.kind))
    context.diagnosis = found.to_dict()
    explained = "\n".join((*found.lines(), "", outcome.detail))
    context.error_outcome = type(outcome)(reason=f"{found.kind}: {outcome.reason}", detail=explained)


def _outcome(
    context: CaseContext, error: BaseException, report: pytest.TestReport, device: Device, missing: Sequence[str]
) -> Outcome:
    if context.is_own:  # pytest's own outcome counts
        if hasattr(report, "wasxfail") and report.skipped:
            return NotJudged(reason=f"expected to fail: {report.wasxfail or one_line(str(error))}"[:REASON_CHARACTERS])
        if isinstance(error, pytest.skip.Exception):
            return NotJudged(reason=f"skipped: {one_line(str(error))}"[:REASON_CHARACTERS])
        if report.when != "call" and isinstance(error, (pytest.fail.Exception, AssertionError)):
            reason = f"error at {report.when}: {one_line(str(error).strip())}"
            return Errored(reason=reason[:REASON_CHARACTERS], detail=report.longreprtext)
    if isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
        return NotRun(reason=f"skipped: {error}")
    if isinstance(error, pytest.fail.Exception):
        return Failed(reason=str(error), detail=report.longreprtext)
    outcome = classify(error, emulated=device.emulated, missing=missing, chip=device.chip())
    return Errored(reason=outcome.reason, detail=report.longreprtext) if outcome.name == Errored.name else outcome
