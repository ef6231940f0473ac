"""Tables and charts over cases: speed-ups over another dtype, published figures, variations of operator inputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import msgspec

from pytest_ascend.page import chart
from pytest_ascend.page.chart import Chart
from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Rule, Verdict
from pytest_ascend.runlog import codec
from pytest_ascend.system import figures
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.files import read_regular
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.columns import link
from pytest_ascend.verdict.phrase import Phrase, in_both, say

FILE = Path("published", "figures.json")
SCHEMA = 2
LARGEST_BYTES = 1 << 20
#: Suites with published figures.
MEASURING = ("benchmarks", "distributed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A published figure of a benchmark (``subject`` and ``property``), in the unit that ``measurement`` ends with.

    ``dtypes`` are those of the case, empty if the source does not name them; ``work`` is what was computed, and
    ``stack`` on what, as far as the source says.
    """

    subject: str
    property: str
    dtypes: tuple[str, ...]
    measurement: str
    value: float
    work: str
    stack: str
    source: str


@cache
def published() -> Sequence[Published]:
    """Return the bundled figures. Raises ValueError for a file of another schema."""
    path = folder("baselines") / FILE
    data = codec.loads(read_regular(path, LARGEST_BYTES).decode("utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"{path} is of schema {data['schema']!r}, and this release reads {SCHEMA}")
    return msgspec.convert(data["figures"], list[Published])


def published_of(case: Case) -> Iterator[Published]:
    """Yield the published figures of the quantity that a case measures."""
    for each in published() if case.suite in MEASURING else ():
        is_same = (case.subject, case.property) == (each.subject, each.property)
        if is_same and (not each.dtypes or case.dtype in each.dtypes):
            yield each


#: The dtype that speed-ups are relative to.
USUAL = "float32"
#: The time of one call: by the device's own clock, if both have one.
_TIMES = ("device_p50_us", "latency_p50_us")
#: Rows of one table.
LINES_LIMIT = 300
#: Operators in the table of input variations.
OPERATORS_LIMIT = 2000
#: The name of the figure, as a measurement's.
SPEED_UP = "speed_up"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: a case, its link, and a text per further column."""

    id: str
    href: str
    cells: tuple[Phrase | str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureTable:
    """A table over cases; ``lead`` explains it, ``columns`` are the headings after the case."""

    title: Phrase
    lead: Phrase
    columns: tuple[Phrase, ...]
    lines: tuple[Line, ...]


def tables(results: Sequence[ResultRecord], *, emulated: bool = False) -> Iterator[FigureTable]:
    """Yield the tables for the results of a suite; no published figure stands beside one of an emulated device."""
    gained = speed_ups(results)
    yield from _table("speed-up", ("usual", "time", "factor"), _speed_ups(results, gained))
    beside = () if emulated else _beside(results, gained)
    yield from _table("published", ("figure", "own", "elsewhere", "stack", "source"), beside)
    yield from _table("accuracy", ("ulp", "at"), _accuracies(results))
    yield from _table("inputs", ("calls", *_KINDS), _variations(results), OPERATORS_LIMIT)


def _table(name: str, columns: Sequence[str], lines: Iterable[Line], limit: int = LINES_LIMIT) -> Iterator[FigureTable]:
    """Yield the table of some rows, whose texts begin with its name; nothing without rows."""
    if found := tuple(islice(lines, limit)):
        of_columns = tuple(say(f"{name}.{each}") for each in columns)
        yield FigureTable(title=say(f"{name}.title"), lead=say(f"{name}.lead"), columns=of_columns, lines=found)


#: What generated calls vary: each case's log has the counts, as "asked_size_empty".
_KINDS = ("arguments", "size", "values", "layout", "way")
_ASKED, _ARGUMENTS = "asked_", "asked_arguments"


def _variations(results: Sequence[ResultRecord]) -> Iterator[Line]:
    """Yield a row per operator: what its generated calls varied, and how often, over all dtypes."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        varied = {name: int(n) for name, n in result.measurements.items() if name.startswith(_ASKED) and 0 <= n < 2**53}
        if varied:
            counts = found.setdefault(result.case.subject, Counter())
            arguments = Counter({_ARGUMENTS: varied.pop(_ARGUMENTS, 0)})  # the same in each dtype
            counts.update(varied)
            counts |= arguments
    for subject in sorted(found, key=figures.sort_key):
        counts = found[subject]
        kinds = (_counted(counts, f"{_ASKED}{kind}") for kind in _KINDS)
        yield Line(evidence.line(subject), f"#cases?q={quote(subject)}", (f"{counts[f'{_ASKED}calls']:,}", *kinds))


def _accuracies(results: Sequence[ResultRecord]) -> Iterator[Line]:
    """Yield the largest error of each function over all inputs of a dtype, in ulp, and where it is."""
    for result in results:
        found = [result.measurements.get(f"error_{name}") for name in ("ulp", "at")]
        if result.case.property == "accuracy" and None not in found:
            cells = tuple(figures.number(float(each or 0.0)) for each in found)
            yield Line(evidence.line(result.case.id), link(result.case.id), cells)


def _counted(counts: Mapping[str, int], kind: str) -> str:
    """Return the variations of a kind, most frequent first, as "edge 6, one 2"."""
    if kind in counts:
        return f"{counts[kind]:,}"
    of_kind = {name.removeprefix(f"{kind}_"): n for name, n in counts.items() if name.startswith(f"{kind}_")}
    told = (f"{name.replace('_', ' ')} {n:,}" for name, n in sorted(of_kind.items(), key=lambda each: -each[1]))
    return evidence.line(", ".join(told))


def speed_ups(results: Sequence[ResultRecord]) -> Mapping[str, float]:
    """Return by case id how many times faster than float32 the same work was in the case's dtype, in the same run."""
    by_case = {result.case.id: result for result in results if result.case.suite == "benchmarks"}
    found = {}
    for name, result in by_case.items():
        usual = by_case.get(result.case.but(dtype=USUAL).id)
        if usual is None or usual is result:
            continue
        both = (time for time in _TIMES if time in usual.measurements and time in result.measurements)
        time = next(both, None)
        if time and result.measurements[time] > 0:
            found[name] = usual.measurements[time] / result.measurements[time]
    return found


def _speed_ups(results: Sequence[ResultRecord], gained: Mapping[str, float]) -> Iterator[Line]:
    by_case = {result.case.id: result for result in results}
    for case_id, factor in gained.items():
        result = by_case[case_id]
        times = []
        for each in (by_case[result.case.but(dtype=USUAL).id], result):
            name = next(time for time in _TIMES if time in each.measurements)
            times.append(figures.quantity(name, each.measurements[name]))
        yield Line(evidence.line(case_id), link(case_id), (*times, _figure(SPEED_UP, factor)))


def _beside(results: Sequence[ResultRecord], gained: Mapping[str, float]) -> Iterator[Line]:
    for result in results:
        own = {**result.measurements, **({SPEED_UP: gained[result.case.id]} if result.case.id in gained else {})}
        batch = own.get("items_per_call")  # a published figure's may differ
        told = f" (batch {figures.number(batch)})" if batch else ""
        for each in published_of(result.case):
            if each.measurement in own:
                yield Line(
                    evidence.line(result.case.id),
                    link(result.case.id),
                    (
                        figures.words(each.measurement),
                        f"{_figure(each.measurement, own[each.measurement])}{told}",
                        f"{_figure(each.measurement, each.value)} ({each.work})",
                        each.stack,
                        each.source,
                    ),
                )


def _figure(name: str, value: float) -> str:
    return f"{value:.2f} ×" if name == SPEED_UP else figures.quantity(name, value)


#: Charts in one section. The least number of a model's tensors for a chart.
CHARTS_LIMIT, LAYERS_FROM = 96, 8
#: Part of a series' name -> its axis, and the series with the labels; None if the positions are counted.
_BY = {
    "_by_batch": ("batch", "batch_size"),
    "_by_step": ("step", None),
    "_by_size": ("size", "message_bytes"),
    "_by_ranks": ("ranks", "rank_count"),
    "_by_card": ("card", None),
    "_by_position": ("position", None),
    "_by_depth": ("depth", None),
}
#: Series drawn beside or below others: the CPU's rounds beside the device's, the labels of a row.
_NOT_ALONE = ("peer_us", *(places for _, places in _BY.values() if places))
BASELINE = "baseline_"
_PARTS_OF_CURVES = ("_actual", "_expected", "_low", "_high")
#: Benchmarks in the chart of slow-downs, and the metric names of a slow-down and its interval.
SLOWDOWNS_LIMIT, _INTERVAL = 40, ("slowdown", "low", "high")
#: A property of a model -> its part of the chart.
_PARTS = {"forward": "outputs", "layers": "outputs", "generate": "outputs", "gradients": "gradients"}


def charts(results: Iterable[ResultRecord]) -> tuple[Chart, ...]:
    """Return a suite's charts: benchmarks against baselines, models by depth, then the recorded series."""
    results = tuple(results)
    rows: list[Chart] = [*_slowdowns(results), *_depths(results)]
    others: list[Chart] = []
    for result in results:
        rows += list(_rows(result))
        if len(others) < CHARTS_LIMIT:
            others += list(_series(result))
    return tuple([*rows, *others][:CHARTS_LIMIT])


def _slowdowns(results: Sequence[ResultRecord]) -> Iterator[Chart]:
    found = []
    for result, verdict in ((one, each) for one in results for each in one.verdicts):
        interval = [value for name in _INTERVAL if isinstance(value := verdict.metrics.get(name), int | float)]
        if len(interval) == len(_INTERVAL) and math.isfinite(interval[0]):
            found.append(chart.Slowdown(evidence.line(result.case.id), verdict.agrees, *interval))
    if found:
        found.sort(key=lambda each: (each.agrees, -each.value))
        yield chart.slowdowns(str(say("chart.slowdowns-title")), found[:SLOWDOWNS_LIMIT])


def _depths(results: Sequence[ResultRecord]) -> Iterator[Chart]:
    models: dict[tuple[str, str, str], dict[str, list[chart.Tensor]]] = {}
    for result in results:
        autocast, _, what = result.case.property.rpartition("-")
        part = _PARTS.get(what)
        if part and result.case.suite in ("models", "user"):
            parts = models.setdefault((result.case.subject, autocast, result.case.dtype), {})
            for verdict in result.verdicts:
                leaves = verdict.leaves[: evidence.LEAVES_LIMIT]
                parts.setdefault(part, []).extend(filter(None, map(_tensor, leaves)))
    for (subject, autocast, dtype), parts in models.items():
        title = evidence.line(" ".join(filter(None, (subject, autocast, dtype))))
        plottable = chart.depth(title, "", parts.get("outputs", []), parts.get("gradients", []))
        if plottable and sum(map(len, parts.values())) >= LAYERS_FROM:
            yield plottable


def _tensor(leaf: Verdict) -> chart.Tensor | None:
    """Return the errors of one tensor; None if its judge did not measure them."""
    metrics, limit = leaf.metrics, leaf.limit
    actual, used = metrics.get("rmse"), metrics.get("limit_used")
    reference = metrics.get("reference_rmse", metrics.get("honest_rmse"))  # logs of schemas up to 3
    if actual is None or reference is None or used is None:
        return None
    scaled = actual / used if used else math.nan  # for another rule: the error at which it would fail
    allowed = limit.value if limit and limit.name == Rule.RMS else scaled
    return chart.Tensor(evidence.line(leaf.path), leaf.agrees, actual, reference, allowed, used)


def _rows(result: ResultRecord) -> Iterator[Chart]:
    """Draw figures over the quantity in their names: batch size, step, message size, number of ranks, card."""
    for name, values in result.series.items():
        part = _part(name)
        if not part or not chart.is_plottable(values) or min(values) < 0:
            continue
        over, places = _BY[part]
        at = result.series.get(places, ()) if places else range(1, len(values) + 1)
        if len(at) == len(values):
            labels, stem = [figures.quantity(places or "", each) for each in at], name.replace(part, "")
            low, high = (figures.quantity(stem, each) for each in (min(values), max(values)))
            named = in_both(figures.words(stem), "findings")
            caption = say(f"chart.by-{over}", name=named, n=labels[-1], low=low, high=high)
            points = list(zip(labels, values, strict=True))
            yield chart.row(*_titled(result), caption, stem, points, over=over, labels=labels)


def _series(result: ResultRecord) -> Iterator[Chart]:
    title, href = _titled(result)
    for name, values in result.series.items():
        stem = name.removesuffix("_actual")
        expected = result.series.get(f"{stem}_expected")
        if stem != name and expected and values:
            spread = (result.series.get(f"{stem}_low", ()), result.series.get(f"{stem}_high", ()))
            yield chart.curve(title, href, stem, values, expected, spread=spread)
        is_part = name in _NOT_ALONE or name.startswith(BASELINE) or name.endswith(_PARTS_OF_CURVES) or _part(name)
        if not is_part and chart.is_plottable(values):
            baseline = result.series.get(f"{BASELINE}{name}", ())
            yield chart.distribution(title, href, name, values, baseline if chart.is_plottable(baseline) else ())


def _part(name: str) -> str:
    """Return the quantity in a series' name that it is plotted over; "" if its values are samples."""
    return next((each for each in _BY if each in name), "")


def _titled(result: ResultRecord) -> tuple[str, str]:
    return evidence.line(result.case.id), link(result.case.id)
