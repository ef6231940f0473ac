"""What other plugins' reports get of a case: properties in JUnit XML, columns and attachments in pytest-html."""

from __future__ import annotations

from html import escape

import pytest
from pytest_html import extras

from pytest_ascend.export import formats
from pytest_ascend.plugin.reports import OUTCOME_PROPERTY, RECORD_PROPERTY, record_of
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.text import one_line
from pytest_ascend.verdict.columns import columns_of

_COLUMNS = columns_of("pytest-html")


class Integrations:
    """Runs where results come together."""

    def __init__(self) -> None:
        self._latest: tuple[str, ResultRecord] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Replace the record by what others can read."""
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
        cells[-1:-1] = [f"<th>{each.heading}</th>" for each in _COLUMNS]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Fill our columns, and show the test's name, which may hold anything, as text."""
        node_id = report.nodeid if report.when == "call" else f"{report.nodeid}::{report.when}"
        cells[1] = f'<td class="col-testId">{escape(one_line(node_id))}</td>'
        record = self._latest[1] if self._latest and self._latest[0] == report.nodeid else None
        found = [each.shown(record, "") if record else "" for each in _COLUMNS]
        cells[-1:-1] = [f"<td>{escape(one_line(each))}</td>" for each in found]
