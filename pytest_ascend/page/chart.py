"""Charts: curves, distributions, layers, rows, and their axes, ticks and paths in the units of the view box.

The template only places what is computed here. A chart is styled by classes only (no inline style), so that the page's
security policy holds and both themes work. It also contains its numbers.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_ascend.runlog import codec
from pytest_ascend.system import figures
from pytest_ascend.system.translation import CHINESE, translated
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.phrase import Phrase, Value, in_both, say

Values: TypeAlias = Sequence[float]
#: Pairs of a label and a value.
Points: TypeAlias = Sequence[tuple[str, float]]
WIDTH, HEIGHT = 380, 190
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 24
#: Number of labels that fit side by side below a chart.
LABELS_LIMIT = 12
#: Largest number in a chart: far beyond a run's figures, and its square is still a float64.
LARGEST = 1e150

BINS_LIMIT = 40
#: A distribution is drawn up to this many interquartile ranges above the upper quartile: a disturbed round would leave
#: no room for the others. Larger values are in the last column.
FENCE = 4.0
#: Height of the difference below a curve, and of a benchmark's row.
DIFFERENCE, SLOWDOWN_ROW = 100, 30
#: Rows of numbers that a chart contains; the log has all of them.
ROWS_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Text:
    """Text at a position; ``anchor`` is SVG's text-anchor."""

    x: float
    y: float
    anchor: str
    words: Phrase | str


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps numbers to positions between two edges."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a number, clipped to the edges."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Shape:
    """A path and its class; ``label`` is its tooltip."""

    path: str
    looks: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart; ``caption`` describes it in words, ``legend`` pairs names with the numbers of their colours.

    ``numbers`` are the plotted values as JSON: ``columns`` and ``rows``.
    """

    title: str
    href: str
    caption: Phrase
    rules: Sequence[str]
    shapes: Sequence[Shape]
    texts: Sequence[Text]
    numbers: str
    legend: Sequence[tuple[Phrase | str, int]] = ()
    height: int = HEIGHT
    width: int = WIDTH


def curve(
    title: str, href: str, stem: str, actual: Values, expected: Values, *, spread: tuple[Values, Values] = ((), ())
) -> Chart:
    """Draw the device's and the expected values step by step, and below them their difference.

    ``spread`` has the reference runs' extremes at each step: a device inside this band deviates no more than they do.
    """
    actual, expected = plottable(actual), plottable(expected)
    low, high = (plottable(each)[: len(expected)] for each in spread)
    finite = [value for value in (*actual, *expected, *low, *high) if math.isfinite(value)] or [0.0]
    x, y = across(max(len(actual) - 1, 1)), upright(min(finite), max(finite))
    differences = [one - other for one, other in zip(actual, expected, strict=False)]
    least, most = ([each - right for each, right in zip(side, expected, strict=False)] for side in (low, high))
    largest = max((abs(each) for each in (*differences, *least, *most) if math.isfinite(each)), default=0.0) or 1.0
    below = Axis(-largest * 1.05, largest * 1.05, HEIGHT + DIFFERENCE - BOTTOM, HEIGHT)
    said = worded(stem, len(actual), distance=max(map(abs, differences), default=0.0))
    caption, bands = say("chart.curve", **said), []
    legend = [(say("chart.actual"), 1), (say("chart.expected"), 2)]
    if low and high:
        inside = (one <= each <= other for one, each, other in zip(least, differences, most, strict=False))
        caption = say("chart.curve-spread", outside=f"{sum(not each for each in inside):,}", **said)
        bands = [Shape(_band(low, high, x, y), "spread"), Shape(_band(least, most, x, below), "spread")]
        legend.append((say("chart.spread"), 3))
    shapes = (
        *bands,
        Shape(polyline(expected, x, y), "line wide s2"),
        Shape(polyline(actual, x, y), "line s1"),
        Shape(polyline(differences, x, below), "line s1"),
    )
    rules, marks = graduated(y)
    rules.append(horizontal(below.at(0)))
    marks += [Text(LEFT - 6, below.at(each) + 4, "end", f"{each:.2g}") for each in (-largest, 0, largest)]
    marks += ends("1", f"{len(actual):,}", HEIGHT + DIFFERENCE - 6)
    rows = [(index + 1, *pair) for index, pair in enumerate(zip(actual, expected, differences, strict=False))]
    numbers = _numbers(("step", "actual", "expected", "difference"), rows)
    return Chart(title, href, caption, rules, shapes, marks, numbers, legend, HEIGHT + DIFFERENCE)


def _band(low: Values, high: Values, x: Axis, y: Axis) -> str:
    """Return the area between two lines; "" if they are not finite."""
    if not all(map(math.isfinite, (*low, *high))):
        return ""
    back = "".join(f"L{x.at(index):.1f} {y.at(value):.1f}" for index, value in reversed(list(enumerate(low))))
    return f"{polyline(high, x, y)}{back}Z"


def distribution(title: str, href: str, name: str, values: Values, baseline: Values = ()) -> Chart:
    """Draw the share of measurements in each interval, with median and quartiles.

    ``baseline`` are other values of the same quantity, such as percentiles, drawn as an outline.
    """
    values, baseline = plottable(values), plottable(baseline)
    low = min((*values, *baseline))
    x = across(max(_end(each) for each in (values, baseline) if each), low)
    bins = min(max(5, round(math.sqrt(len(values)) * 2)), BINS_LIMIT)
    edges = [x.low + (x.high - x.low) * index / bins for index in range(bins)]
    now, before = _shares(values, edges), _shares(baseline, edges)
    y, foot, width = Axis(0, max((*now, *before)), HEIGHT - BOTTOM, TOP), HEIGHT - BOTTOM, (WIDTH - LEFT - RIGHT) / bins
    first, middle, third = _quartiles(values)
    shapes = []
    for n, share in enumerate(now):
        if share:
            column = f"M{LEFT + n * width:.1f} {foot:.1f}V{y.at(share):.1f}h{width - 1:.1f}V{foot:.1f}Z"
            shapes.append(Shape(column, "bar s1", f"{round(share * len(values)):,}"))
    for place, looks in ((first, "quartile"), (middle, "median"), (third, "quartile")):
        shapes.append(Shape(f"M{x.at(place):.1f} {TOP}V{foot}", looks))
    said = worded(name, len(values), median=middle, low=min(values), high=max(values))
    caption, legend = say("chart.samples", **said), []
    columns, rows = [f"from ({figures.unit(name)})", "share of samples"], [edges, now]
    if baseline:
        outline = "".join(f"V{y.at(each):.1f}h{width:.2f}" for each in before)
        shapes.append(Shape(f"M{LEFT} {foot}{outline}", "line s2"))
        legend += [(say("chart.now"), 1), (say("chart.baseline"), 2)]
        caption = say("chart.beside", then=figures.quantity(name, statistics.median_high(baseline)), **said)
        columns.append("share of baseline")
        rows.append(before)
    beyond = "≥ " if max((*values, *baseline)) > x.high else ""
    texts = ends(figures.quantity(name, low), f"{beyond}{figures.quantity(name, x.high)}")
    numbers = _numbers(columns, list(zip(*rows, strict=True)))
    return Chart(title, href, caption, (horizontal(foot),), shapes, texts, numbers, legend)


@dataclass(frozen=True, slots=True)
class Tensor:
    """The verdict on one tensor of a model: root mean square errors of the device, and of the CPU in that dtype.

    ``allowed`` is the smallest failing error, ``used`` the share of the judge's limit that was used.
    """

    path: str
    agrees: bool
    actual: float
    reference: float
    allowed: float
    used: float


def depth(title: str, href: str, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> Chart | None:
    """Draw a model's errors by depth, outputs and then gradients, on a logarithmic scale; None if there are too few."""
    tensors = [*outputs, *gradients]
    drawable = [each for each in tensors if 0 < each.actual <= LARGEST]
    if len(drawable) < 2:
        return None
    worst = max(tensors, key=lambda each: each.used)
    lines = [
        [math.log10(value) if 0 < (value := getattr(each, name)) <= LARGEST else math.nan for each in tensors]
        for name in ("actual", "reference", "allowed")
    ]
    finite = [each for line in lines for each in line if math.isfinite(each)]
    x, y = across(max(len(tensors) - 1, 1)), upright(math.floor(min(finite)), math.ceil(max(finite)) or 1e-9)
    looks = ("line s1", "line s2", "line s3 dashed")
    shapes = [Shape(polyline(line, x, y), each) for line, each in reversed(list(zip(lines, looks, strict=True)))]
    for place, each in enumerate(tensors):
        if not each.agrees and math.isfinite(lines[0][place]):
            mark = dot(x.at(place), y.at(lines[0][place]))
            shapes.append(Shape(mark, "dot bad", f"{each.path}: {figures.used(each.used)}"))
    powers = range(math.ceil(y.low), math.floor(y.high) + 1)
    rules = [horizontal(y.at(each)) for each in powers]
    if outputs and gradients:
        rules.append(f"M{x.at(len(outputs) - 0.5):.1f} {TOP}V{HEIGHT - BOTTOM}")
    shown = {"n": f"{len(tensors):,}", "outputs": f"{len(outputs):,}"}
    caption = say("chart.depth", path=worst.path, used=figures.used(worst.used), **shown)
    texts = [Text(LEFT - 6, y.at(each) + 4, "end", f"1e{each}") for each in powers[:: max(1, len(powers) // 5)]]
    texts += ends(say("chart.outputs") if outputs else "", say("chart.gradients") if gradients else "")
    rows = [(each.path, each.actual, each.reference, each.allowed) for each in tensors]
    numbers = _numbers(("tensor", "device", "CPU in that dtype", "allowed"), rows)
    legend = ((say("chart.device"), 1), (say("chart.cpu"), 2), (say("chart.allowed"), 3))
    return Chart(title, href, caption, rules, shapes, texts, numbers, legend)


def slowdowns(title: str, found: Sequence[tuple[str, bool, float, float, float]]) -> Chart:
    """Draw benchmarks against their baselines: how much slower each is, with its confidence interval.

    For each: the name, whether it agrees, and as shares the value, low and high: 0.06 is 6 % slower.
    """
    finite = [each for _, _, *shares in found for each in shares if math.isfinite(each)] or [0.0]
    least, most = min(*finite, -0.05), max(*finite, 0.05)
    x = Axis(least, most, 12, WIDTH - RIGHT)
    shapes, texts = [], []
    for place, (name, agrees, value, low, high) in enumerate(found):
        y = 24 + place * SLOWDOWN_ROW
        looks, label = "s1" if agrees else "bad", f"{name}: {100 * value:+.1f} %"
        left = x.at(low) if math.isfinite(low) else x.start
        right = x.at(high) if math.isfinite(high) else x.end
        shapes.append(Shape(f"M{left:.1f} {y}H{right:.1f}", f"line {looks}"))
        shapes.append(Shape(dot(x.at(value), y), f"dot {looks}", label))
        texts.append(Text(12, y - 7, "start", label))
    height = 24 + len(found) * SLOWDOWN_ROW + 10
    texts += ends(f"{100 * least:+.0f} %", f"{100 * most:+.0f} %", height - 4, 12)
    slower = sum(not agrees for _, agrees, *_ in found)
    caption = say("chart.slowdowns", n=f"{len(found):,}", slower=f"{slower:,}")
    rows = [(name, *shares) for name, _, *shares in found]
    numbers = _numbers(("benchmark", "slow-down", "low", "high"), rows)
    return Chart(title, "", caption, (f"M{x.at(0):.1f} {TOP}V{height - 16}",), shapes, texts, numbers, height=height)


def row(
    title: str, href: str, caption: Phrase, name: str, points: Points, *, over: str, labels: Sequence[str]
) -> Chart:
    """Draw one figure over ``over``: batch sizes, steps, combinations.

    ``points`` are pairs of a full label and the figure, ``labels`` the short labels on the axis.
    """
    values = plottable(value for _, value in points)
    x, y = across(len(points) - 1), upright(0.0, max(values))
    rules, marks = graduated(y, name)
    shapes = [Shape(polyline(values, x, y), "line s1")]
    for index, ((label, _), value) in enumerate(zip(points, values, strict=True)):
        shapes.append(Shape(dot(x.at(index), y.at(value)), "dot s1", f"{label}: {figures.quantity(name, value)}"))
    return Chart(title, href, caption, rules, shapes, [*marks, *x_labels(x, labels)], _numbers((over, name), points))


def worded(name: str, count: int, **values: float) -> dict[str, Value]:
    """Return the values of a caption: what was measured, how often, and figures in its unit."""
    told = {each: figures.quantity(name, value) for each, value in values.items()}
    return {"name": in_both(figures.words(name), "findings"), "n": f"{count:,}", **told}


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the plotted values as JSON for readers, six digits of each number."""
    return codec.dumps(
        {
            "columns": [evidence.line(each) for each in columns],
            "chinese": [translated(evidence.line(each), CHINESE, "findings") for each in columns],
            "rows": [list(map(_rounded, each)) for each in rows[:ROWS_LIMIT]],
        }
    )


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _quartiles(values: Values) -> Sequence[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3


def _end(values: Values) -> float:
    first, _, third = _quartiles(values)
    fence = third + FENCE * (third - first)
    return min(max(values), fence) if fence > first else max(values)


def _shares(values: Values, edges: Values) -> list[float]:
    """Return the share of the values in each interval; the last one has all larger ones."""
    counts = [0] * len(edges)
    for value in values:
        counts[bisect_right(edges, value) - 1] += 1
    return [count / (len(values) or 1) for count in counts]


def plottable(values: Iterable[float]) -> list[float]:
    """Return numbers that a chart can show: nan for too large ones, 0 for those too close to 0.

    Sums and differences of float64's largest and smallest numbers are infinite or 0, and axes divide by them.
    """
    return [math.nan if not abs(each) <= LARGEST else 0.0 if abs(each) < 1 / LARGEST else each for each in values]


def is_plottable(values: Values) -> bool:
    """Return whether there are values, and a chart can show all of them."""
    return bool(values) and not any(map(math.isnan, plottable(values)))


def across(last: float, low: float = 0.0) -> Axis:
    """Return the axis from left to right."""
    return Axis(low, last if last > low else low + (abs(low) or 1.0), LEFT, WIDTH - RIGHT)


def upright(low: float, high: float) -> Axis:
    """Return the axis from bottom to top, with margins; it begins at 0 if ``low`` is 0."""
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return Axis(low - (margin if low else 0), high + margin, HEIGHT - BOTTOM, TOP)


def ticks(axis: Axis, *, binary: bool = False) -> list[float]:
    """Return round numbers inside an axis, about four of them; powers of two if ``binary``."""
    rough = (axis.high - axis.low) / 4
    if binary:
        step = 2.0 ** math.ceil(math.log2(rough))
    else:
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1)]


def graduated(axis: Axis, name: str = "") -> tuple[list[str], list[Text]]:
    """Return a horizontal line at each tick of a vertical axis, and the labels of the ticks in the unit of ``name``."""
    places = [(axis.at(each), each) for each in ticks(axis, binary=figures.unit(name) == "B")]
    labels = (figures.brief(name, each) if name else f"{each:.4g}" for _, each in places)
    texts = [Text(LEFT - 6, at + 4, "end", label) for (at, _), label in zip(places, labels, strict=True)]
    return [horizontal(at) for at, _ in places], texts


def ends(first: Phrase | str, last: Phrase | str, y: float = HEIGHT - 6, left: float = LEFT) -> tuple[Text, ...]:
    """Return labels below both ends of an axis; empty labels are omitted."""
    both = (Text(left, y, "start", first), Text(WIDTH - RIGHT, y, "end", last))
    return tuple(each for each in both if each.words)


def x_labels(axis: Axis, labels: Sequence[str]) -> tuple[Text, ...]:
    """Return as many labels as fit on an axis that counts from 0."""
    step = math.ceil(len(labels) / LABELS_LIMIT)
    last = len(labels) - 1 or None  # its label would be cut off at the edge
    return tuple(
        Text(axis.at(index), HEIGHT - 6, "end" if index == last else "middle", labels[index])
        for index in range(0, len(labels), step)
    )


def polyline(values: Values, x: Axis, y: Axis) -> str:
    """Return a line through the finite values, with gaps at others."""
    path, pen = [], "M"
    for index, value in enumerate(values):
        if math.isfinite(value):
            path.append(f"{pen}{x.at(index):.1f} {y.at(value):.1f}")
        pen = "L" if math.isfinite(value) else "M"
    return "".join(path)


def horizontal(y: float) -> str:
    """Return a horizontal line."""
    return f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}"


def dot(x: float, y: float) -> str:
    """Return a point."""
    return f"M{x - 2.5:.1f} {y:.1f}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0Z"
