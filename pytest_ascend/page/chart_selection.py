"""Which pictures a suite has: what its records keep as series says what is drawn of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from pytest_ascend.page import chart
from pytest_ascend.page.chart import Chart
from pytest_ascend.page.svg import can_be_drawn
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.grid import link
from pytest_ascend.verdict.phrase import say

#: Pictures in one section. Tensors of a model from which on a picture of them says more than their list.
CHARTS_LIMIT, LAYERS_FROM = 96, 8
#: Series that are drawn beside or below others: the CPU's rounds beside the device's, the places of a row.
_NOT_ALONE = ("peer_us", "batch_size")
BASELINE = "baseline_"
#: Benchmarks in the picture of slow-downs, and what a benchmark's judge calls its slow-down and the interval around it.
SLOWDOWNS_LIMIT, _INTERVAL = 40, ("slowdown", "low", "high")
#: What is looked at of a model -> the part of its picture.
_PARTS = {"forward": "outputs", "layers": "outputs", "gradients": "gradients"}


def charts(results: Iterable[ResultRecord]) -> tuple[Chart, ...]:
    """Draw a suite: benchmarks beside their baseline, models by depth, then what each case kept as series."""
    results = tuple(results)
    rows: list[Chart] = [*_slowdowns(results), *_depths(results)]
    others: list[Chart] = []
    for result in results:
        rows += list(_rows(result))
        if len(others) < CHARTS_LIMIT:
            others += list(_series(result))
    return tuple([*rows, *others][:CHARTS_LIMIT])


def _slowdowns(results: Sequence[ResultRecord]) -> Iterator[Chart]:
    """Draw the benchmarks that were held against a baseline."""
    found = [
        chart.Slowdown(evidence.line(result.case.id), verdict.agrees, *(verdict.metrics[name] for name in _INTERVAL))
        for result in results
        for verdict in result.verdicts
        if all(isinstance(verdict.metrics.get(name), int | float) for name in _INTERVAL)
    ]
    found = [each for each in found if math.isfinite(each.value)]
    if found:
        found.sort(key=lambda each: (each.agrees, -each.value))
        yield chart.slowdowns(str(say("chart.slowdowns-title")), found[:SLOWDOWNS_LIMIT])


def _depths(results: Sequence[ResultRecord]) -> Iterator[Chart]:
    """Draw each model in each dtype that has enough tensors."""
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
        drawn = chart.depth(title, "", parts.get("outputs", []), parts.get("gradients", []))
        if drawn and sum(map(len, parts.values())) >= LAYERS_FROM:
            yield drawn


def _tensor(leaf: Verdict) -> chart.Tensor | None:
    """Return the errors of one tensor; None where its judge did not measure them."""
    metrics, limit = leaf.metrics, leaf.limit
    actual, honest, used = (metrics.get(name) for name in ("rmse", "honest_rmse", "limit_used"))
    if actual is None or honest is None or used is None:
        return None
    scaled = actual / used if used else math.nan  # of another rule: the error at which that would fail
    allowed = limit.value if limit and limit.name == "root mean square error" else scaled
    return chart.Tensor(evidence.line(leaf.path), leaf.agrees, actual, honest, allowed, used)


def _rows(result: ResultRecord) -> Iterator[Chart]:
    """Draw figures by batch size and by step."""
    sizes = result.series.get("batch_size", ())
    for name, values in result.series.items():
        if not can_be_drawn(values) or min(values) < 0:
            continue
        if "_by_batch" in name and len(sizes) == len(values):
            batches = [figures.number(size) for size in sizes]
            yield _row(result, name.replace("_by_batch", ""), values, batches, over="batch")
        elif "_by_step" in name:
            numbers = [f"{index + 1}" for index in range(len(values))]
            yield _row(result, name.replace("_by_step", ""), values, numbers, over="step")


def _row(result: ResultRecord, name: str, values: Sequence[float], places: Sequence[str], *, over: str) -> Chart:
    low, high = (figures.quantity(name, each) for each in (min(values), max(values)))
    said = say(f"chart.by-{over}", name=figures.words(name), n=places[-1], low=low, high=high)
    points = list(zip(places, values, strict=True))
    return chart.row(*_titled(result), said, name, points, over=over, labels=places)


def _series(result: ResultRecord) -> Iterator[Chart]:
    title, href = _titled(result)
    for name, values in result.series.items():
        stem = name.removesuffix("_actual")
        expected = result.series.get(f"{stem}_expected")
        if stem != name and expected and values:
            spread = (result.series.get(f"{stem}_low", ()), result.series.get(f"{stem}_high", ()))
            yield chart.curve(title, href, stem, values, expected, spread=spread)
        elif stem == name and _is_distribution(name) and can_be_drawn(values):
            baseline = result.series.get(f"{BASELINE}{name}", ())
            yield chart.distribution(title, href, name, values, baseline if can_be_drawn(baseline) else ())


def _is_distribution(name: str) -> bool:
    is_part = name in _NOT_ALONE or name.startswith(BASELINE) or name.endswith(("_expected", "_low", "_high"))
    return not is_part and "_by_batch" not in name and "_by_step" not in name


def _titled(result: ResultRecord) -> tuple[str, str]:
    return evidence.line(result.case.id), link(result.case.id)
