"""Tables and charts over cases: speed-ups over another dtype, published figures, variations of operator inputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from urllib.parse import quote

import msgspec

from pytest_ascend.page import View, chart
from pytest_ascend.page.chart import Chart
from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Rule
from pytest_ascend.runlog import codec
from pytest_ascend.system import figures
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.files import read_regular
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.columns import link
from pytest_ascend.verdict.phrase import say

#: The time of one call: by the device's own clock, if both have one.
_TIMES = ("device_p50_us", "latency_p50_us")
#: Number of rows of one table, and of operators in the table of input variations.
LINES_LIMIT, OPERATORS_LIMIT = 300, 2000
#: The name of the figure, in the form of a measurement's name.
SPEED_UP = "speed_up"
#: What generated calls vary: each case's log has the counts, e.g. as "generated_size_empty".
_KINDS = ("arguments", "size", "values", "layout", "way")
_CALLS, _ARGUMENTS = "generated_", "generated_arguments"
#: Number of charts in one section, and the least number of a model's tensors for a chart.
CHARTS_LIMIT, LAYERS_FROM = 96, 8
#: Part of a series' name -> its axis, and the series with its labels; None if positions are counted.
_AXES = {
    "_by_batch": ("batch", "batch_size"),
    "_by_step": ("step", None),
    "_by_size": ("size", "message_bytes"),
    "_by_ranks": ("ranks", "rank_count"),
    "_by_card": ("card", None),
    "_by_position": ("position", None),
    "_by_depth": ("depth", None),
}
#: Series drawn only with others: the CPU's rounds beside the device's, the labels of a row.
_NOT_ALONE = ("peer_us", *(places for _, places in _AXES.values() if places))
BASELINE = "baseline_"
#: Number of benchmarks in the chart of slow-downs.
SLOWDOWNS_LIMIT = 40
#: A property of a model -> its part of the chart.
_PARTS = {"forward": "outputs", "layers": "outputs", "generate": "outputs", "gradients": "gradients"}
SCHEMA = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A published figure of a benchmark (``subject`` and ``property``), in the unit that ``measurement`` ends with.

    ``dtypes`` are those of the case, empty if the source does not name them; ``work`` says what was computed and
    ``stack`` on which stack, as far as the source does.
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
    path = folder("baselines") / "published" / "figures.json"
    data = codec.loads(read_regular(path, 1 << 20).decode("utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"{path} is of schema {data['schema']!r}, and this release reads {SCHEMA}")
    return msgspec.convert(data["figures"], list[Published])


def published_of(case: Case) -> Iterator[Published]:
    """Yield the published figures of the quantity that a case measures."""
    for each in published() if case.suite in ("benchmarks", "distributed") else ():
        is_same = (case.subject, case.property) == (each.subject, each.property)
        if is_same and (not each.dtypes or case.dtype in each.dtypes):
            yield each


def tables(results: Sequence[ResultRecord], *, emulated: bool = False) -> Iterator[View]:
    """Yield the tables for the results of a suite; published figures are not shown beside an emulated device's.

    ``lead`` explains a table, ``columns`` are the headings after the case; a line has a text per column.
    """
    beside = () if emulated else _beside(results)
    gained = (
        _line(case_id, *(figures.quantity(name, each) for each in (usual, own)), _figure(SPEED_UP, usual / own))
        for case_id, name, usual, own in _times(results)
    )
    for name, columns, lines, limit in (
        ("speed-up", ("usual", "time", "factor"), gained, LINES_LIMIT),
        ("published", ("figure", "own", "elsewhere", "stack", "source"), beside, LINES_LIMIT),
        ("accuracy", ("ulp", "at"), _accuracies(results), LINES_LIMIT),
        ("inputs", ("calls", *_KINDS), _variations(results), OPERATORS_LIMIT),
    ):
        if found := tuple(islice(lines, limit)):
            headings = tuple(say(f"{name}.{each}") for each in columns)
            yield View(title=say(f"{name}.title"), lead=say(f"{name}.lead"), columns=headings, lines=found)


def _line(case_id: str, *cells: str) -> View:
    return View(id=evidence.line(case_id), href=link(case_id), cells=cells)


def _variations(results: Sequence[ResultRecord]) -> Iterator[View]:
    """Yield a row per operator: what its generated calls varied, and how often, over all dtypes."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        varied = {name: int(n) for name, n in result.measurements.items() if name.startswith(_CALLS) and 0 <= n < 2**53}
        if varied:
            counts = found.setdefault(result.case.subject, Counter())
            arguments = Counter({_ARGUMENTS: varied.pop(_ARGUMENTS, 0)})  # equal for all dtypes
            counts.update(varied)
            counts |= arguments
    for subject in sorted(found, key=figures.sort_key):
        cells = [f"{found[subject][f'{_CALLS}calls']:,}"]
        for kind in _KINDS:  # most frequent first, e.g. "edge 6, one 2"
            name = f"{_CALLS}{kind}"
            told = [
                f"{each.removeprefix(f'{name}_').replace('_', ' ')} {n:,}"
                for each, n in found[subject].most_common()
                if each.startswith(f"{name}_")
            ]
            cells.append(f"{found[subject][name]:,}" if name in found[subject] else evidence.line(", ".join(told)))
        yield View(id=evidence.line(subject), href=f"#cases?q={quote(subject)}", cells=cells)


def _accuracies(results: Sequence[ResultRecord]) -> Iterator[View]:
    """Yield the largest error of each function over all inputs of a dtype, in ulp, and where it occurs."""
    for result in results:
        found = [result.measurements.get(f"error_{name}") for name in ("ulp", "at")]
        if result.case.property == "accuracy" and None not in found:
            yield _line(result.case.id, *(figures.number(float(each or 0.0)) for each in found))


def _times(results: Sequence[ResultRecord]) -> Iterator[tuple[str, str, float, float]]:
    """Yield id, name, time in float32 and own time of each case whose work was also done in float32."""
    by_case = {result.case.id: result for result in results if result.case.suite == "benchmarks"}
    for case_id, result in by_case.items():
        usual = by_case.get(result.case.but(dtype="float32").id, result)
        name = next((each for each in _TIMES if each in usual.measurements and each in result.measurements), "")
        if usual is not result and result.measurements.get(name, 0) > 0:
            yield case_id, name, usual.measurements[name], result.measurements[name]


def speed_ups(results: Sequence[ResultRecord]) -> Mapping[str, float]:
    """Return by case id how many times faster than float32 the same work was in the case's dtype, in the same run."""
    return {case_id: usual / own for case_id, _, usual, own in _times(results)}


def _beside(results: Sequence[ResultRecord]) -> Iterator[View]:
    gained = speed_ups(results)
    for result in results:
        own = {**result.measurements, **({SPEED_UP: gained[result.case.id]} if result.case.id in gained else {})}
        batch = own.get("items_per_call")  # may differ from a published figure's
        told = f" (batch {figures.number(batch)})" if batch else ""
        for each in published_of(result.case):
            name = each.measurement
            if name in own:
                elsewhere = f"{_figure(name, each.value)} ({each.work})"
                measured = f"{_figure(name, own[name])}{told}"
                yield _line(result.case.id, figures.words(name), measured, elsewhere, each.stack, each.source)


def _figure(name: str, value: float) -> str:
    return f"{value:.2f} ×" if name == SPEED_UP else figures.quantity(name, value)


def charts(results: Iterable[ResultRecord]) -> tuple[Chart, ...]:
    """Return a suite's charts: benchmarks against baselines, models by depth, then the recorded series."""
    results = tuple(results)
    slow = []
    for result, verdict in ((one, each) for one in results for each in one.verdicts):
        value, low, high = (verdict.metrics.get(name) for name in ("slowdown", "low", "high"))
        if value is not None and low is not None and high is not None and math.isfinite(value):
            slow.append((evidence.line(result.case.id), verdict.agrees, value, low, high))
    slow.sort(key=lambda each: (each[1], -each[2]))
    title = str(say("chart.slowdowns-title"))
    rows = [*([chart.slowdowns(title, slow[:SLOWDOWNS_LIMIT])] if slow else []), *_depths(results)]
    others: list[Chart] = []
    for result, name, values in ((one, *each) for one in results for each in one.series.items()):
        title, href, series = evidence.line(result.case.id), link(result.case.id), result.series
        # Figures over the quantity in their names, then curves and samples.
        if axis := next((each for each in _AXES if each in name), ""):
            over, places = _AXES[axis]
            at = series.get(places, ()) if places else range(1, len(values) + 1)
            if chart.is_plottable(values) and min(values) >= 0 and len(at) == len(values):
                stem, labels = name.replace(axis, ""), [figures.quantity(places or "", each) for each in at]
                told = {**chart.worded(stem, 0, low=min(values), high=max(values)), "n": labels[-1]}
                caption, points = say(f"chart.by-{over}", **told), list(zip(labels, values, strict=True))
                rows.append(chart.row(title, href, caption, stem, points, over=over, labels=labels))
        elif len(others) < CHARTS_LIMIT and name not in _NOT_ALONE and not name.startswith(BASELINE):
            stem = name.removesuffix("_actual")
            if stem != name and values and (expected := series.get(f"{stem}_expected")):
                spread = (series.get(f"{stem}_low", ()), series.get(f"{stem}_high", ()))
                others.append(chart.curve(title, href, stem, values, expected, spread=spread))
            elif chart.is_plottable(values) and not name.endswith(("_actual", "_expected", "_low", "_high")):
                before = series.get(f"{BASELINE}{name}", ())
                before = before if chart.is_plottable(before) else ()
                others.append(chart.distribution(title, href, name, values, before))
    return tuple([*rows, *others][:CHARTS_LIMIT])


def _depths(results: Sequence[ResultRecord]) -> Iterator[Chart]:
    models: dict[tuple[str, str, str], dict[str, list[chart.Tensor]]] = {}
    for result in results:
        autocast, _, what = result.case.property.rpartition("-")
        part = _PARTS.get(what)
        if part and result.case.suite in ("models", "user"):
            parts = models.setdefault((result.case.subject, autocast, result.case.dtype), {})
            for leaf in (each for verdict in result.verdicts for each in verdict.leaves[: evidence.LEAVES_LIMIT]):
                metrics, limit = leaf.metrics, leaf.limit
                actual, used = metrics.get("rmse"), metrics.get("limit_used")
                reference = metrics.get("reference_rmse", metrics.get("honest_rmse"))  # logs of schemas up to 3
                if actual is not None and reference is not None and used is not None:  # the judge measured them
                    scaled = actual / used if used else math.nan  # for another rule: the error at which it would fail
                    allowed = limit.value if limit and limit.name == Rule.RMS else scaled
                    tensor = chart.Tensor(evidence.line(leaf.path), leaf.agrees, actual, reference, allowed, used)
                    parts.setdefault(part, []).append(tensor)
    for (subject, autocast, dtype), parts in models.items():
        title = evidence.line(" ".join(filter(None, (subject, autocast, dtype))))
        plottable = chart.depth(title, "", parts.get("outputs", []), parts.get("gradients", []))
        if plottable and sum(map(len, parts.values())) >= LAYERS_FROM:
            yield plottable
