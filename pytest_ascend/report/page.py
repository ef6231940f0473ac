"""What the page says, in its order: all is counted, sorted, worded and cut before a template places it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack
from pytest_ascend.report import checks, evidence, figures, sections
from pytest_ascend.report.casedata import case_data
from pytest_ascend.report.contents import SUBSET
from pytest_ascend.report.outcomes import APPEARANCE, Appearance
from pytest_ascend.report.sections import ROWS_LIMIT, Entry, Group, SuiteSection
from pytest_ascend.report.summary import Summary

_STACK_LABELS = (
    ("chip", "Chip"),
    ("driver", "Driver"),
    ("firmware", "Firmware"),
    ("cann", "CANN"),
    ("torch", "torch"),
    ("torch_npu", "torch_npu"),
    ("torch_npu_commit", "torch_npu commit"),
    ("python", "Python"),
    ("os", "System"),
    ("host", "Host"),
    ("pytest_ascend", "pytest-ascend"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what is known under it; an empty value is shown as not known."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Tile:
    """The count of one outcome. ``x`` and ``width`` place it in the bar, in percent."""

    outcome: str
    count: str
    share: str
    x: str
    width: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """All that the template places. ``label`` marks every section where no NPU computed anything."""

    title: str
    kind: str
    notice: str
    opening: str
    body: str
    label: str
    is_faulty: bool
    warnings: tuple[str, ...]
    tiles: tuple[Tile, ...]
    combination: tuple[Fact, ...]
    run_facts: tuple[Fact, ...]
    deviations: tuple[Group, ...]
    suites: tuple[SuiteSection, ...]
    absent: tuple[Group, ...]
    waivers: tuple[Entry, ...]
    loosened: tuple[Entry, ...]
    standards: tuple[Fact, ...]
    options: tuple[Fact, ...]
    appearance: Mapping[str, Appearance]
    total: str
    log: str
    data: Mapping[str, Any]


def page_of(summary: Summary) -> Page:
    """Arrange a summary as a page."""
    header, verdict, results = summary.run.header, summary.verdict, summary.results
    waived = [each for each in results if each.outcome.name == "waived"]
    loosened = [each for each in results if evidence.loosened(each)]
    log, command = sections.log_name(summary), sections.command(summary)
    return Page(
        title=_title(header.stack),
        kind=verdict.kind,
        notice=figures.one_line(verdict.notice),
        opening=figures.one_line(verdict.opening),
        body=figures.one_line(f"{verdict.body[:1].upper()}{verdict.body[1:]}"),
        label=_label(header.stack),
        is_faulty=bool(summary.deviations),
        warnings=tuple(_warnings(summary)),
        tiles=tuple(_tiles(summary)),
        combination=tuple(Fact(label, evidence.line(getattr(header.stack, name))) for name, label in _STACK_LABELS),
        run_facts=tuple(_run_facts(summary)),
        deviations=tuple(sections.deviations(summary)),
        suites=tuple(sections.suites(results)),
        absent=tuple(sections.absent(results)),
        waivers=tuple(sections.entry(each) for each in waived[:ROWS_LIMIT]),
        loosened=tuple(sections.entry(each) for each in loosened[:ROWS_LIMIT]),
        standards=tuple(_standards(results)),
        options=tuple(Fact(evidence.line(key), _option(value)) for key, value in header.options.items()),
        appearance=APPEARANCE,
        total=f"{len(results):,}",
        log=log,
        data={**case_data(summary), "command": command, "log": log},
    )


def _title(stack: Stack) -> str:
    names = {"": stack.chip or stack.device, "CANN ": stack.cann, "torch_npu ": stack.torch_npu}
    return evidence.line(" · ".join(f"{name}{value}" for name, value in names.items() if value))


def _label(stack: Stack) -> str:
    if stack.emulated:
        return "emulated device"
    return "" if stack.device == "npu" else evidence.line(f"{stack.device}, not an NPU")


def _tiles(summary: Summary) -> Iterator[Tile]:
    total, x = len(summary.results), 0.0
    for name, count in summary.counts.items():
        width = 100 * count / total if total else 0.0
        yield Tile(name, f"{count:,}", figures.share(count, total), f"{x:.3f}%", f"{width:.3f}%")
        x += width


def _run_facts(summary: Summary) -> Iterator[Fact]:
    header, footer = summary.run.header, summary.run.footer
    started = checks.moment(header.started)
    yield Fact("Level", header.level)
    yield Fact("Selection", _selection(summary))
    yield Fact("Executed", f"{summary.executed:,} of {len(summary.results):,} cases")
    yield Fact("Started", figures.moment(started))
    if footer:
        took_s = (checks.moment(footer.finished) - started).total_seconds()
        yield Fact("Took", figures.duration(took_s) if took_s >= 1 else "less than 1 s")
    yield Fact("Run", evidence.line(header.run_id))


def _warnings(summary: Summary) -> Iterator[str]:
    """Give what nobody may overlook: a footer that claims something else, and faults planted on purpose."""
    yield from (figures.one_line(each) for each in summary.contradictions)
    if faults := summary.run.header.options.get("faults"):
        yield evidence.line(f"Faults are planted on purpose: {_option(faults)}")


def _option(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value)
    return evidence.line(str(value)) or "–"


def _selection(summary: Summary) -> str:
    selection = summary.run.header.selection
    if selection.kind != SUBSET:
        return "full run"
    return evidence.line(f"subset: {selection.reason}" if selection.reason else "subset")


def _standards(results: Iterable[ResultRecord]) -> Iterator[Fact]:
    found = Counter(verdict["standard"] for result in results for verdict in result.verdicts)
    for name, count in found.most_common(50):
        yield Fact(evidence.line(name) or "unnamed", f"{count:,} comparisons")
