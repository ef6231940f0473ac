"""Layout of charts: axes, their ticks, and paths, in the units of the view box."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_ascend.system import figures
from pytest_ascend.verdict.phrase import Phrase

WIDTH, HEIGHT = 380, 190
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 24
#: The number of labels that fit side by side below a chart.
LABELS_LIMIT = 12
#: Largest number in a chart: far beyond a run's figures, and its square is still a float64.
LARGEST = 1e150


@dataclass(frozen=True, slots=True)
class Text:
    """Text at a position; ``anchor`` is SVG's text-anchor."""

    x: str
    y: str
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


def plottable(values: Iterable[float]) -> list[float]:
    """Return numbers that a chart can show: nan for too large ones, 0 for those too close to 0.

    Sums and differences of float64's largest and smallest numbers are infinite or 0, and axes divide by them.
    """
    return [math.nan if not abs(each) <= LARGEST else 0.0 if abs(each) < 1 / LARGEST else each for each in values]


def is_plottable(values: Sequence[float]) -> bool:
    """Whether there are values, and a chart can show all of them."""
    return bool(values) and not any(map(math.isnan, plottable(values)))


def across(last: float, low: float = 0.0) -> Axis:
    """Return the axis from left to right."""
    return Axis(low, last if last > low else low + (abs(low) or 1.0), LEFT, WIDTH - RIGHT)


def upright(low: float, high: float) -> Axis:
    """Return the axis from bottom to top, with margins; it begins at 0 if ``low`` is 0."""
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return Axis(low - (margin if low else 0), high + margin, HEIGHT - BOTTOM, TOP)


def ticks(axis: Axis, count: int = 4, *, binary: bool = False) -> list[float]:
    """Return round numbers inside an axis, about ``count`` of them; powers of two if ``binary``."""
    rough = (axis.high - axis.low) / count
    if binary:
        step = 2.0 ** math.ceil(math.log2(rough))
    else:
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(axis.low / step)
    return [number * step for number in range(first, math.floor(axis.high / step) + 1)]


def rules(axis: Axis, name: str = "") -> tuple[str, ...]:
    """Return a horizontal line at each tick."""
    return tuple(horizontal(axis.at(each)) for each in _ticks_of(axis, name))


def y_texts(axis: Axis, name: str = "") -> tuple[Text, ...]:
    """Return the tick labels of a vertical axis, in the unit of ``name``."""
    return tuple(
        Text(f"{LEFT - 6}", f"{axis.at(each) + 4:.1f}", "end", figures.brief(name, each) if name else f"{each:.4g}")
        for each in _ticks_of(axis, name)
    )


def _ticks_of(axis: Axis, name: str) -> list[float]:
    return ticks(axis, binary=figures.unit(name) == "B")


def x_ends(first: str, last: str) -> tuple[Text, ...]:
    """Return labels below both ends of an axis."""
    return (
        Text(f"{LEFT}", f"{HEIGHT - 6}", "start", first),
        Text(f"{WIDTH - RIGHT}", f"{HEIGHT - 6}", "end", last),
    )


def x_labels(axis: Axis, labels: Sequence[str]) -> tuple[Text, ...]:
    """Return the labels of an axis that counts from 0, or as many of them as there is room for."""
    step = math.ceil(len(labels) / LABELS_LIMIT)
    last = len(labels) - 1 or None  # its label would be cut at the edge
    return tuple(
        Text(f"{axis.at(index):.1f}", f"{HEIGHT - 6}", "end" if index == last else "middle", labels[index])
        for index in range(0, len(labels), step)
    )


def polyline(values: Sequence[float], x: Axis, y: Axis) -> str:
    """Return a line through the finite values, with gaps at others."""
    path, pen = [], "M"
    for index, value in enumerate(values):
        if math.isfinite(value):
            path.append(f"{pen}{x.at(index):.1f} {y.at(value):.1f}")
        pen = "L" if math.isfinite(value) else "M"
    return "".join(path)


def steps(values: Sequence[float], y: Axis) -> str:
    """Return the outline of columns of equal width."""
    width = (WIDTH - LEFT - RIGHT) / len(values)
    return f"M{LEFT} {HEIGHT - BOTTOM}" + "".join(f"V{y.at(each):.1f}h{width:.2f}" for each in values)


def horizontal(y: float) -> str:
    """Return a line across."""
    return f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}"


def vertical(x: float) -> str:
    """Return a line from top to bottom."""
    return f"M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"


def box(x: float, top: float, width: float, bottom: float) -> str:
    """Return a column."""
    return f"M{x:.1f} {bottom:.1f}V{top:.1f}h{width:.1f}V{bottom:.1f}Z"


def dot(x: float, y: float) -> str:
    """Return a point."""
    return f"M{x - 2.5:.1f} {y:.1f}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0Z"
