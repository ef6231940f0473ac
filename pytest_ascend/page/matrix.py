"""Many runs on one page: which combinations conform, the outcomes of each operator and model, and speed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_ascend.page import View, chart, html
from pytest_ascend.page.changes import name_of
from pytest_ascend.page.chart import Chart
from pytest_ascend.page.page import label_of
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.reading import LogReader, PlainPass, opened
from pytest_ascend.system import figures
from pytest_ascend.system.programs import without_garbage_collection
from pytest_ascend.system.suites import suites
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.phrase import SILENCE, commas, say
from pytest_ascend.verdict.summary import ORDER, Summary, counted_outcome, judged, results_of

#: Parts of a stack that runs are sorted by, and that the table of combinations shows.
SHOWN = ("chip", "driver", "cann", "torch", "torch_npu", "python")
#: Number of combinations that the answer names.
NAMES_LIMIT = 5
#: Number of charts of speed; suites of benchmarks come first.
CHARTS_LIMIT = 120
#: The most important figures of a benchmark; suites of benchmarks come before others.
_FIRST = (
    *("device_p50_us", "latency_p50_us", "throughput_items_per_s"),
    *("best_throughput_items_per_s", "peak_memory_bytes"),
)


def render_matrix(outlines: Iterable[Summary], *, into: Path | None = None) -> str:
    """Return a page on many runs, which loads nothing; links to their pages are relative to the folder ``into``."""
    runs = sorted(outlines, key=_order)
    labels = {label.key: label for label in (label_of(run.run.header.stack) for run in runs)}
    # Runs that conform: for the heading, and by name.
    conforming = [run for run in runs if run.verdict.conforms and not run.verdict.notice]
    key = {0: "matrix.answer.none", len(runs): "matrix.answer.all"}.get(len(conforming), "matrix.answer")
    names = list(dict.fromkeys(name_of(run.run.header.stack) for run in conforming))
    more = f", … ({len(names):,})" if len(names) > NAMES_LIMIT else ""
    those = [say("matrix.those", names=f"{', '.join(names[:NAMES_LIMIT])}{more}")] if names else []
    emulated = any(run.run.header.stack.emulated for run in runs)
    page = View(
        title=f"{len(runs):,} runs · pytest-ascend",
        kind_of_page=say("page.matrix"),
        looks="kind-subset",
        label=labels.popitem()[1] if len(labels) == 1 else SILENCE,
        answer=say(key, conforming=f"{len(conforming):,}", n=f"{len(runs):,}"),
        sentences=(*those, *([say("matrix.emulated")] if emulated else [])),
        shown=tuple(say(f"stack.{name}") for name in SHOWN),
        runs=tuple(_row(index, run, into) for index, run in enumerate(runs)),
        outcomes=ORDER,
        charts=tuple(_charts(runs)),
    )
    return html.place("matrix.html", ("common.js", "matrix.js"), page, _data(runs, page.runs))


def _order(run: Summary) -> tuple[object, ...]:
    stack, started = run.run.header.stack, run.run.header.started
    return (*(natural(str(getattr(stack, name))) for name in ("chip", "cann", "torch_npu", "driver")), started)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts versions naturally: 8.5 before 8.10, and a version's RC1 before its release."""
    parts = re.findall(r"\d{1,9}|[^\d.]+", text.casefold())
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _row(index: int, summary: Summary, into: Path | None) -> View:
    header = summary.run.header
    passed, total = summary.counts[Passed.name], summary.total
    return View(
        number=f"{index + 1}",
        name=name_of(header.stack),
        chip=evidence.line(header.stack.chip or header.stack.device),
        label=label_of(header.stack),
        versions=tuple(evidence.line(str(getattr(header.stack, name))) for name in SHOWN),
        kind=summary.verdict.kind,
        opening=summary.verdict.opening,
        share=(f"{math.floor(1000 * passed / total) / 10:.1f} %" if total else "–"),
        tally=commas([counted_outcome(name, count) for name, count in summary.counts.items() if count]),
        started=header.started[: len("2026-01-01")],
        path=evidence.line(summary.run.path),
        link=html.page_beside(Path(summary.run.path), into) if into else "",
    )


def _data(runs: Sequence[Summary], rows: Sequence[View]) -> dict[str, Any]:
    """Return the matrix for its script: a cell is the number of a tally, -1 if the run has no such case.

    A tally is a list of (outcome, count), worst outcome first.
    """
    numbers: dict[tuple[int, ...], int] = {}
    places = {suite: place for place, suite in enumerate((*suites(), "user"))}
    by_run = [tallies(run) for run in runs]
    subjects = {subject for each in by_run for subject in each}
    lines = []
    for subject in sorted(subjects, key=lambda each: (places.get(each[0], len(places)), *map(figures.sort_key, each))):
        found = [each.get(subject) for each in by_run]
        cells = [-1 if tally is None else numbers.setdefault(tuple(tally), len(numbers)) for tally in found]
        lines.append([evidence.line(each) for each in subject] + [cells])
    return {
        "outcomes": list(ORDER),
        "runs": [{"name": row.name, "chip": row.chip, "label": str(row.label)} for row in rows],
        "tallies": [[[ORDER[rank], count] for rank, count in enumerate(tally) if count] for tally in numbers],
        "lines": lines,
    }


def _charts(runs: Sequence[Summary]) -> Iterator[Chart]:
    """Draw each speed and size over the runs on one chip and kind of host, if at least two have it."""
    points: dict[tuple[str, str, str, str], list[tuple[int, str, float]]] = {}
    for index, run in enumerate(runs):
        stack = run.run.header.stack
        measured = ((each.case.id, *pair) for each in run.run.records for pair in each.measurements.items())
        for case_id, name, value in measured if not stack.emulated else ():
            if name.endswith(("_us", "_ms", "_s", "_bytes")) and value >= 0 and chart.is_plottable([value]):
                key = (evidence.line(stack.chip or stack.device), evidence.line(stack.host), case_id, name)
                points.setdefault(key, []).append((index + 1, name_of(stack), float(value)))
    wanted = [key for key, values in points.items() if len(values) > 1]
    wanted.sort(key=lambda key: (not key[2].startswith("benchmarks/"), key[3] not in _FIRST, *key[2:], *key[:2]))
    for chip, host, case_id, name in wanted[:CHARTS_LIMIT]:
        found = points[chip, host, case_id, name]
        caption = say("chart.speeds", **chart.worded(name, len(found), first=found[0][2], last=found[-1][2]))
        labelled = [(f"{number}: {label}", value) for number, label, value in found]
        title, labels = f"{evidence.line(case_id)} · {chip}{f', {host}' if host else ''}", [f"{n}" for n, *_ in found]
        yield chart.row(title, "", caption, name, labelled, over="combination", labels=labels)


def scan(path: Path, measured: str = "") -> Summary:
    """Summarise the log at ``path``, without results of cases that passed by comparisons.

    Results are kept if they also measured and their ids begin with ``measured``. Raises RunLogError for a log that
    cannot be trusted, naming file and line.
    """
    with opened(path) as file, without_garbage_collection():
        log = LogReader(path, file)
        found = {each.case.id: each for each in log.outlines(measured)}
    run = log.run_of(tuple(each for each in found.values() if isinstance(each, ResultRecord)))
    plain = {name for name, each in found.items() if isinstance(each, PlainPass)}
    results = tuple(results_of(run, plain))
    counts = Counter(each.outcome_name for each in results)
    counts[Passed.name] += len(plain)
    return judged(run, counts, results=results)


def tallies(summary: Summary) -> dict[tuple[str, str, str], list[int]]:
    """Count the cases of each (suite, family, subject) by rank, their position in ``ORDER``."""
    ranks = {each.case.id: ORDER.index(each.outcome_name) for each in summary.results}
    found: dict[tuple[str, str, str], list[int]] = {}
    for case in summary.run.header.manifest:
        tally = found.setdefault((case.suite, case.family, case.subject), [0] * len(ORDER))
        tally[ranks.get(case.id, ORDER.index(Passed.name))] += 1
    return found
