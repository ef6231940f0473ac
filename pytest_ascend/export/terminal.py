"""The last lines on the terminal: what deviates, the verdict, and where to read on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import LEFT_BEHIND, QUARANTINED, RESUMED, Run
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.grid import tally
from pytest_ascend.verdict.phrase import counted
from pytest_ascend.verdict.summary import CONFORMS, DOES_NOT_CONFORM, ORDER, Summary

#: Cases that are named on the terminal; the page names all.
CASES_LIMIT = 20
_COLOURS = {
    "failed": "red",
    "errored": "red",
    "flaky": "red",
    "fallback": "yellow",
    "unsupported": "yellow",
    "not-run": "yellow",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line and how it looks: ``colour`` is a name that pytest's terminal and click share, empty for none."""

    text: str
    colour: str = ""
    bold: bool = False

    @property
    def markup(self) -> dict[str, bool]:
        """Return keyword arguments for ``TerminalReporter.write_line``."""
        return {**({self.colour: True} if self.colour else {}), "bold": self.bold}


def lines(summary: Summary, *, page: Path | None = None, limit: int = CASES_LIMIT) -> Iterator[Line]:
    """Yield the closing lines of a run. Foreign text in them cannot steer the terminal."""
    yield from _cases(summary, limit)
    yield Line(str(tally(summary.results)) or "no cases")
    if summary.left:
        shown_by = counted("cases", len(summary.run.header.left))
        yield Line(
            f"not asked: {counted('cases', summary.left)} without a kernel, as shown by {shown_by} (--ascend-ask-all)"
        )
    if summary.verdict.notice:
        yield Line(str(summary.verdict.notice).upper(), "yellow", bold=True)
    yield Line(figures.one_line(f"{summary.verdict.opening}: {summary.verdict.body}"), _colour(summary), bold=True)
    for each in summary.contradictions:
        yield Line(figures.one_line(each), "red")
    if page:
        yield Line(f"report: {figures.one_line(str(page))}")


def beside(run: Run, stopped: str = "") -> Iterator[Line]:
    """Say what happened beside the cases: cards that were given up, memory left behind, why the run ``stopped``."""
    for event in run.events:
        if event["kind"] == QUARANTINED:
            yield Line(figures.one_line(f"{event['card']} is quarantined: {event['reason']}"), "red")
        elif event["kind"] == LEFT_BEHIND:
            left = f"{event['case']} left {event['bytes'] / 2**20:,.1f} MiB allocated on {event['card']}"
            yield Line(figures.one_line(left), "yellow")
        elif event["kind"] == RESUMED:
            yield Line(f"continued: {event['records']:,} cases were recorded before")
    if stopped:
        yield Line(figures.one_line(f"stopped: {stopped}; continue with --ascend-resume"), "red")


def _cases(summary: Summary, limit: int) -> Iterator[Line]:
    """Name the cases that ran and deviate, the worst outcome first, and what stopped the others."""
    found = [result for result in summary.results if result.outcome.name in _COLOURS and result.node_id]
    found.sort(key=lambda result: ORDER.index(result.outcome.name))
    yield from _named(found[:limit])
    if len(found) > limit:
        yield Line(f"... and {len(found) - limit:,} more, in the report")


def _named(results: Sequence[ResultRecord]) -> Iterator[Line]:
    for result in results:
        name = result.outcome.name
        yield Line(f"{name:<12} {evidence.line(result.case.id)}: {evidence.finding(result)}", _COLOURS[name])
        yield Line(f"{'':<12} again: pytest --ascend {figures.one_line(shlex.quote(result.node_id))}")


def _colour(summary: Summary) -> str:
    if summary.deviations or summary.verdict.kind == DOES_NOT_CONFORM or not summary.executed:
        return "red"
    return "green" if summary.verdict.kind == CONFORMS and not summary.verdict.notice else "yellow"
