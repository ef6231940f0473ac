"""Many runs over time: pass share, causes first and last seen, benchmarks with their verdicts, for each combination.

The site is a folder for any static host: ``index.html``, which loads nothing, and ``history.json`` for other programs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pytest_ascend.page import View, chart, html
from pytest_ascend.page.changes import name_of
from pytest_ascend.page.chart import Chart
from pytest_ascend.page.matrix import scan
from pytest_ascend.page.page import by_family, label_of
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Passed
from pytest_ascend.runlog.contents import FULL, digest
from pytest_ascend.runlog.reading import opened
from pytest_ascend.system.files import read_regular, write_file
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.version import __version__
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import GROUPED, causes_of
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, say
from pytest_ascend.verdict.summary import Summary

#: Raised whenever a reader of the JSON form would misread it.
SCHEMA = 1
#: The site's index of outlines of runs, so that a growing site reads each log only once.
INDEX = "index.msgpack"
#: Number of causes, cases and benchmarks of one combination that the page lists.
CAUSES_LIMIT, CASES_LIMIT, CHARTS_LIMIT = 100, 50, 24
#: Number of runs beside each other in the row of a case, and of cases per run whose outcomes are kept.
LATEST, OUTCOMES_LIMIT = 10, 2_000
#: The figure of a benchmark that is tracked: by the device's own clock, if there is one.
_TIMES = ("device_p50_us", "latency_p50_us", "throughput_items_per_s", "peak_memory_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Outline of one run: by id, ``causes`` has number of cases, title and outcome; ``benchmarks`` figure and verdict.

    ``outcomes`` has the cases that did not pass, ``families`` the number of passed cases and of all; ``manifest`` is a
    digest of all cases.
    """

    run_id: str
    started: str
    combination: str
    level: str
    label: Phrase
    opening: Phrase
    kind: str
    passed: int
    total: int
    causes: Mapping[str, tuple[int, str, str]]
    benchmarks: Mapping[tuple[str, str], tuple[float, str]]
    outcomes: Mapping[str, str]
    families: Mapping[str, tuple[int, int]]
    manifest: str
    page: str

    @property
    def day(self) -> str:
        """Return the start of the run, to the minute."""
        return self.started[: len("2026-01-01T00:00")].replace("T", " ")


#: A log by its path relative to the site, size, modification time in ns, and the release that read it -> the run.
_Index = dict[tuple[str, int, int, str], Point]


def points_of(logs: Iterable[Path], site: Path) -> list[Point]:
    """Return outlines of runs: those already known to the site from its index, which is then rewritten.

    An index that cannot be read, or with phrases that this release lacks, is ignored.
    """
    found, known = _Index(), _Index()
    with suppress(OSError, msgspec.MsgspecError, LookupError, ValueError):
        stored = msgspec.msgpack.decode(read_regular(site / INDEX, 256 << 20), type=_Index)
        if all(str(phrase) for each in stored.values() for phrase in (each.label, each.opening) if phrase):
            known = stored
    for log in logs:
        with opened(log) as file:
            state = os.fstat(file.fileno())
        key = (os.path.relpath(log, site), state.st_size, state.st_mtime_ns, __version__)
        found[key] = known.get(key) or point_of(scan(log, "benchmarks/"))
    write_file(site / INDEX, msgspec.msgpack.encode(found))
    return list(found.values())


def point_of(summary: Summary, page: str = "") -> Point:
    """Return the outline of a run whose plain passes may be left out; ``page`` is the address of its own page."""
    header = summary.run.header
    benchmarks = {}
    for result in summary.results:
        name = next((each for each in _TIMES if each in result.measurements), "")
        if result.case.suite == "benchmarks" and name:
            headline = result.verdicts[-1].headline if result.verdicts else ""
            key = evidence.line(result.case.id), name
            benchmarks[key] = float(result.measurements[name]), evidence.line(headline)
    bad = [each for each in summary.results if each.outcome_name != Passed.name]
    families = Counter(map(_family, header.manifest))
    passed = families - Counter(_family(each.case) for each in bad)
    # Level, shard and selection: only runs of the same cases form one trend.
    shard = f"shard {header.shard.index}/{header.shard.count}" if header.shard else ""
    chosen = header.shard.selection if header.shard else header.selection
    subset = (chosen.reason or "subset") if chosen.kind != FULL else ""
    return Point(
        run_id=evidence.line(header.run_id),
        started=header.started,
        combination=name_of(header.stack),
        level=evidence.line(", ".join(filter(None, (header.level, shard, subset)))),
        label=label_of(header.stack),
        opening=summary.verdict.opening,
        kind=summary.verdict.kind,
        passed=summary.counts["passed"],
        total=summary.total,
        causes={
            each.id: (len(each.cases), each.title, each.outcome) for each in causes_of(summary.results, header.manifest)
        },
        benchmarks=benchmarks,
        outcomes={evidence.line(each.case.id): each.outcome_name for each in bad[:OUTCOMES_LIMIT]},
        families={evidence.line(name): (passed[name], number) for name, number in families.items()},
        manifest=digest(case.id for case in header.manifest),
        page=page,
    )


def _family(case: Case) -> str:
    return "/".join(filter(None, (case.suite, case.family)))


def render_history(points: Iterable[Point]) -> str:
    """Return the page on many runs, which loads nothing."""
    groups = grouped(points)
    labels = {point.label.key: point.label for group in groups.values() for point in group}
    count = counted("history.n-runs", sum(map(len, groups.values())))
    page = View(
        title="history · pytest-ascend",
        kind_of_page=say("page.history"),
        looks="kind-subset",
        label=labels.popitem()[1] if len(labels) == 1 else SILENCE,
        sentence=say("history.sentence", runs=count, combinations=counted("history.n-combinations", len(groups))),
        combinations=tuple(
            _combination(number, f"{name} · {level}", group)
            for number, ((name, level), group) in enumerate(groups.items())
        ),
    )
    return html.place("history.html", ("common.js",), page, {"changes": {}})


def to_dict(points: Iterable[Point]) -> dict[str, Any]:
    """Return the history as builtins, for other programs."""
    return {
        "schema": SCHEMA,
        "combinations": [
            {
                "combination": name,
                "level": level,
                "runs": [
                    {
                        "run": each.run_id,
                        "started": each.started,
                        "verdict": each.kind,
                        "passed": each.passed,
                        "cases": each.total,
                        "causes": {key: cases for key, (cases, *_) in each.causes.items()},
                        "outcomes": dict(each.outcomes),
                        "families": {name: list(pair) for name, pair in each.families.items()},
                        "benchmarks": [
                            {"case": case, "name": figure, "value": value, "verdict": verdict}
                            for (case, figure), (value, verdict) in each.benchmarks.items()
                        ],
                    }
                    for each in group
                ],
            }
            for (name, level), group in grouped(points).items()
        ],
    }


def grouped(points: Iterable[Point]) -> dict[tuple[str, str], list[Point]]:
    """Return the runs of each combination and level in order of time; duplicates count once."""
    ordered = sorted({point.run_id: point for point in points}.values(), key=lambda point: point.started)
    return by_key(((each.combination, each.level), each) for each in ordered)


def _combination(number: int, title: str, runs: Sequence[Point]) -> View:
    shares, trend = [100 * each.passed / each.total if each.total else 0.0 for each in runs], None
    if len(runs) > 1:
        first, last = (f"{shares[place]:.2f} %" for place in (0, -1))
        caption = say("history.share", n=f"{len(runs):,}", first=first, last=last)
        trend = _over_time(runs, "", caption, "passed_percent", shares)
    return View(
        id=f"combination-{number}",
        title=title,
        label=runs[-1].label,
        trend=trend,
        runs=runs[::-1],
        causes=tuple(_causes(runs))[:CAUSES_LIMIT],
        cases=tuple(cases_of(runs)),
        families=tuple(by_family(runs[-1].families)),
        charts=tuple(_benchmarks(runs))[:CHARTS_LIMIT],
    )


def _over_time(runs: Sequence[Point], title: str, caption: Phrase, name: str, values: Sequence[float]) -> Chart:
    points = list(zip((each.day for each in runs), values, strict=True))
    return chart.row(title, "", caption, name, points, over="run", labels=[each.started[5:10] for each in runs])


def _causes(runs: Sequence[Point]) -> Iterator[View]:
    """Yield the causes of all runs: those of the latest run first, then largest first.

    Each has its first and its last run; ``is_gone`` if the latest run does not have it.
    """
    seen = by_key((cause, point) for point in runs for cause in point.causes)
    gone = {cause: cause not in runs[-1].causes for cause in seen}
    for cause in sorted(seen, key=lambda each: (gone[each], -seen[each][-1].causes[each][0], each)):
        points = seen[cause]
        cases, title, outcome = points[-1].causes[cause]
        yield View(
            title=title or cause,
            outcome=outcome,
            first=points[0].day,
            last=points[-1].day,
            runs=f"{len(points):,} / {len(runs):,}",
            cases=f"{cases:,}",
            is_gone=gone[cause],
        )


def cases_of(runs: Sequence[Point]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the cases that deviated in the last runs, the most frequent first, with an outcome for each run.

    An outcome is "" if a run did not have the case, or did not keep it.
    """
    runs = runs[-LATEST:]
    seen = Counter(case for point in runs for case, outcome in point.outcomes.items() if outcome in GROUPED)
    for case in sorted(seen, key=lambda each: (-seen[each], each))[:CASES_LIMIT]:
        having = {point.manifest for point in runs if case in point.outcomes}
        there = (point.manifest in having and len(point.outcomes) < OUTCOMES_LIMIT for point in runs)
        others = (Passed.name if each else "" for each in there)
        yield case, tuple(point.outcomes.get(case, other) for point, other in zip(runs, others, strict=True))


def _benchmarks(runs: Sequence[Point]) -> Iterator[Chart]:
    """Draw each benchmark over the runs that measured it, with the latest verdict; emulated devices are left out."""
    runs = [each for each in runs if not each.label]
    for case, figure in dict.fromkeys(name for point in runs for name in point.benchmarks):
        those = [point for point in runs if (case, figure) in point.benchmarks]
        values = [point.benchmarks[case, figure][0] for point in those]
        if len(those) < 2 or not chart.is_plottable(values) or min(values) < 0:
            continue
        verdict = those[-1].benchmarks[case, figure][1] or "–"
        told = chart.worded(figure, len(those), first=values[0], last=values[-1])
        yield _over_time(those, case, say("history.benchmark", verdict=verdict, **told), figure, values)
