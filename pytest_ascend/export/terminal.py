"""The closing lines on the terminal: deviations, the verdict, and where to find more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pytest_ascend.records.case import OWN, OWN_TEST
from pytest_ascend.records.outcome import Errored, Passed
from pytest_ascend.records.record import BUG, ResultRecord
from pytest_ascend.runlog.contents import LeftBehind, Quarantined, Resumed, Run
from pytest_ascend.system import figures
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import causes_of, known_causes
from pytest_ascend.verdict.columns import tally
from pytest_ascend.verdict.phrase import counted
from pytest_ascend.verdict.summary import CONFORMS, DOES_NOT_CONFORM, Summary

#: Maximum number of causes listed on the terminal; the page lists all.
CAUSES_LIMIT = 8
#: Maximum number of known causes listed on the terminal.
KNOWN_LIMIT = 3
_COLOURS = {
    **dict.fromkeys(("failed", "errored", "flaky"), "red"),
    **dict.fromkeys(("fallback", "unsupported", "not-run"), "yellow"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style: ``colour`` is a name known to both pytest's terminal and click, empty for none."""

    text: str
    colour: str = ""
    bold: bool = False

    @property
    def markup(self) -> dict[str, bool]:
        """Return keyword arguments for ``TerminalReporter.write_line``."""
        return {**({self.colour: True} if self.colour else {}), "bold": self.bold}


def lines(summary: Summary, *, page: Path | None = None, limit: int = CAUSES_LIMIT) -> Iterator[Line]:
    """Yield the closing lines of a run. Untrusted text in them cannot control the terminal."""
    found = [cause for cause in causes_of(summary.results) if cause.representative.node_id]
    for cause in found[:limit]:
        first, colour, count = cause.representative, _COLOURS[cause.outcome], len(cause.cases)
        of = f" of {cause.ran:,}" if cause.ran > count else ""
        many = f": {count:,}{of} cases, such as {evidence.line(first.case.id)}" if count > 1 else ""
        title = f"{cause.title}{many}"
        if cause.is_named_by_its_finding:
            title = f"{count:,} cases, such as {evidence.line(first.case.id)}"
        yield Line(f"{cause.outcome:<12} {title}: {cause.finding}", colour)
        for said in _evidence(first):
            yield Line(f"{'':<12} {said}", colour)
        yield Line(f"{'':<12} again: {evidence.again(summary.run.header, first.node_id)}")
    if len(found) > limit:
        cases = sum(len(cause.cases) for cause in found[limit:])
        yield Line(f"... and {len(found) - limit:,} more causes with {counted('cases', cases)}, in the report")
    yield Line(str(tally(summary.results)) or "no cases")
    # The known causes, and the cases that are better than expected.
    if causes := known_causes(summary.results):
        known = [f"{len(each.cases):,} {each.cause}" for each in causes[:KNOWN_LIMIT]]
        more = [f"{len(causes) - KNOWN_LIMIT:,} more causes"] if len(causes) > KNOWN_LIMIT else []
        all_cases = counted("cases", sum(len(each.cases) for each in causes))
        yield Line(figures.one_line(f"known: {all_cases}: {'; '.join((*known, *more))}"))
    if better := [each for each in summary.results if each.outcome_name == Passed.name and each.reason]:
        why = evidence.finding(better[0])
        yield Line(figures.one_line(f"better than expected: {counted('cases', len(better))}, as {why}"), "yellow")
    if summary.verdict.notice:
        yield Line(str(summary.verdict.notice).upper(), "yellow", bold=True)
    colour = "green" if summary.verdict.kind == CONFORMS and not summary.verdict.notice else "yellow"
    if summary.deviations or summary.verdict.kind == DOES_NOT_CONFORM or not summary.executed:
        colour = "red"
    yield Line(figures.one_line(f"{summary.verdict.opening}: {summary.verdict.body}"), colour, bold=True)
    for each in summary.contradictions:
        yield Line(figures.one_line(each), "red")
    if named := evidence.blind(summary.results):
        yield Line(figures.one_line(str(named)), "yellow")
    if page:
        yield Line(f"report: {figures.one_line(str(page))}")


def _evidence(result: ResultRecord) -> list[str]:
    """Return where and how a user's operator is wrong: its worst element, and the pattern of its errors.

    For an error with a known diagnosis, return its findings, such as the modules that hold the memory, and its remedy.
    """
    known = result.diagnosis
    if result.outcome.name == Errored.name and known.get("kind") not in (None, BUG):
        findings = known.get("findings")
        found = findings if isinstance(findings, Sequence) else []
        return [evidence.line(str(each)) for each in (*found, f"remedy: {known.get('remedy')}")]
    verdict = next((each for each in result.verdicts if not each.agrees), None)
    if not verdict or result.case.suite != OWN or result.case.property == OWN_TEST or result.case.family == "models":
        return []
    elements = evidence.elements(verdict)[:1]
    worst = [f"worst element: {place}  actual {is_}  expected {was}" for place, is_, was in elements]
    return [*worst, *([f"pattern: {evidence.line(verdict.pattern)}"] if verdict.pattern else [])]


def beside(
    run: Run, stopped: str = "", *, warned: int = 0, output: Mapping[str, int] = MappingProxyType({})
) -> Iterator[Line]:
    """Yield lines on other events: quarantined cards, memory left behind, why the run ``stopped``.

    ``warned`` counts hidden warnings; ``output`` counts lines that C++ code wrote despite capturing.
    """
    if warned:
        yield Line(f"{warned:,} warning{'s'[: warned > 1]} of torch, torch_npu and the bundled suites; -v lists them")
    if output:
        yield Line(figures.one_line(f"{sum(output.values()):,} lines of C++, such as: {next(iter(output))}"))
    for event in run.events:
        if isinstance(event, Quarantined):
            yield Line(figures.one_line(f"{event.card} is quarantined: {event.reason}"), "red")
        elif isinstance(event, LeftBehind):
            left = f"{event.case} left {event.bytes / 2**20:,.1f} MiB allocated on {event.card}"
            yield Line(figures.one_line(left), "yellow")
        elif isinstance(event, Resumed):
            yield Line(f"continued: {event.records:,} cases were recorded before")
    if stopped:
        yield Line(figures.one_line(f"stopped: {stopped}; continue with --ascend-resume"), "red")
