"""Which pictures a suite has: what its records keep as series says what is drawn of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytest_ascend.page import chart
from pytest_ascend.page.chart import Chart
from pytest_ascend.page.svg import can_be_drawn
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.grid import link
from pytest_ascend.verdict.phrase import say

#: Pictures in one section. Tensors of a model from which on a picture of them says more than their list.
CHARTS_LIMIT, LAYERS_FROM = 96, 8
#: Series that are drawn beside or below others: the CPU's rounds beside the device's, the places of a row.
_NOT_ALONE = ("peer_us", "batch_size")
BASELINE = "baseline_"


def charts(results: Iterable[ResultRecord]) -> tuple[Chart, ...]:
    """Draw the rows, then the curves, the distributions and the layers of a suite, in the order of its cases."""
    rows: list[Chart] = []
    others: list[Chart] = []
    for result in results:
        rows += list(_rows(result))
        if len(others) < CHARTS_LIMIT:
            others += [*_series(result), *_layers(result)]
    return tuple([*rows, *others][:CHARTS_LIMIT])


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
            yield chart.curve(title, href, stem, values, expected)
        elif stem == name and _is_distribution(name) and can_be_drawn(values):
            baseline = result.series.get(f"{BASELINE}{name}", ())
            yield chart.distribution(title, href, name, values, baseline if can_be_drawn(baseline) else ())


def _is_distribution(name: str) -> bool:
    is_part = name in _NOT_ALONE or name.startswith(BASELINE) or name.endswith("_expected")
    return not is_part and "_by_batch" not in name and "_by_step" not in name


def _layers(result: ResultRecord) -> Iterator[Chart]:
    for verdict in result.verdicts if result.case.suite == "models" else ():
        leaves = verdict.leaves[: evidence.LEAVES_LIMIT]
        drawn = chart.layers(*_titled(result), leaves) if len(leaves) >= LAYERS_FROM else None
        if drawn:
            yield drawn


def _titled(result: ResultRecord) -> tuple[str, str]:
    return evidence.line(result.case.id), link(result.case.id)
