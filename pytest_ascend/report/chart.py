"""Pictures of figures: curves, samples, layers, speeds. All geometry is worked out here; the template only places it.

A chart is drawn by classes alone (no inline style), so that the policy of the page holds and both themes fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from pytest_ascend.report import evidence, figures
from pytest_ascend.report.phrase import Phrase, say

WIDTH, HEIGHT = 380, 190
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 24
BINS_LIMIT = 40
#: A share of a limit below this is drawn as this: the picture is about what comes near it.
LEAST_SHARE = 1e-4


@dataclass(frozen=True, slots=True)
class Shape:
    """A path and the class by which it is drawn; ``label`` is what a pointer that rests on it is told."""

    path: str
    looks: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Words at a place; ``anchor`` is SVG's text-anchor."""

    x: str
    y: str
    anchor: str
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One picture; ``said`` tells in words what it shows, ``legend`` pairs names with the numbers of their colours."""

    title: str
    href: str
    said: Phrase
    rules: tuple[str, ...]
    shapes: tuple[Shape, ...]
    texts: tuple[Text, ...]
    legend: tuple[tuple[Phrase | str, int], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps numbers to places between two edges."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Give the place of a number, inside the edges whatever the number."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def curve(title: str, href: str, stem: str, actual: Sequence[float], expected: Sequence[float]) -> Chart:
    """Draw what a device did step by step over what was expected of it."""
    finite = [value for value in (*actual, *expected) if math.isfinite(value)] or [0.0]
    x, y = _across(len(actual) - 1), _upright(min(finite), max(finite))
    distance = max((abs(one - other) for one, other in zip(actual, expected, strict=False)), default=0.0)
    return Chart(
        title=title,
        href=href,
        said=say(
            "chart.curve", name=figures.words(stem), n=f"{len(actual):,}", distance=figures.quantity(stem, distance)
        ),
        rules=_rules(y),
        shapes=(Shape(_polyline(expected, x, y), "line wide s2"), Shape(_polyline(actual, x, y), "line s1")),
        texts=(*_y_texts(y), *_x_texts("1", f"{len(actual):,}")),
        legend=((say("chart.actual"), 1), (say("chart.expected"), 2)),
    )


def samples(title: str, href: str, name: str, values: Sequence[float]) -> Chart:
    """Draw how often each span of values was measured, with median and quartiles."""
    low, high = min(values), max(values)
    x = _Axis(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)
    counts = _histogram(values, x)
    y = _Axis(0, max(counts), HEIGHT - BOTTOM, TOP)
    first, middle, third = quantiles(values, n=4) if len(values) > 1 else [low] * 3
    marks = [Shape(_vertical(x.at(each)), looks) for each, looks in ((first, "quartile"), (middle, "median"))]
    return Chart(
        title=title,
        href=href,
        said=say(
            "chart.samples",
            name=figures.words(name),
            n=f"{len(values):,}",
            median=figures.quantity(name, middle),
            low=figures.quantity(name, low),
            high=figures.quantity(name, high),
        ),
        rules=(_horizontal(HEIGHT - BOTTOM),),
        shapes=(*_bars(counts, y), *marks, Shape(_vertical(x.at(third)), "quartile")),
        texts=_x_texts(figures.quantity(name, low), figures.quantity(name, high)),
    )


def layers(title: str, href: str, leaves: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Draw which share of its limit each tensor used, in the order of the model; None where none is known."""
    shares = [(leaf["path"], leaf["agrees"], leaf["metrics"].get("limit_used")) for leaf in leaves]
    known = [(path, agrees, share) for path, agrees, share in shares if share is not None and not math.isnan(share)]
    if len(known) < 2:
        return None
    path, _, largest = max(known, key=lambda each: each[2])
    y = _Axis(math.log10(LEAST_SHARE), max(0.3, _log(largest)), HEIGHT - BOTTOM, TOP)
    width = (WIDTH - LEFT - RIGHT) / len(known)
    bars = tuple(
        Shape(
            _box(LEFT + index * width, y.at(_log(share)), max(width * 0.8, 0.6), HEIGHT - BOTTOM),
            "bar s1" if agrees else "bar bad",
            f"{evidence.line(name)}: {figures.used(share)}",
        )
        for index, (name, agrees, share) in enumerate(known)
    )
    return Chart(
        title=title,
        href=href,
        said=say("chart.layers", n=f"{len(known):,}", path=evidence.line(path), used=figures.used(largest)),
        rules=tuple(_horizontal(y.at(each)) for each in (-3, -2, -1, 0)),
        shapes=(*bars, Shape(_horizontal(y.at(0)), "limit")),
        texts=tuple(
            Text(f"{LEFT - 6}", f"{y.at(power) + 4:.1f}", "end", figures.used(10.0**power)) for power in (-3, -2, -1, 0)
        ),
    )


def speeds(title: str, name: str, points: Sequence[tuple[str, float]]) -> Chart:
    """Draw one figure over combinations, from the oldest: ``points`` are pairs of a combination and its figure."""
    values = [value for _, value in points]
    x, y = _across(len(points) - 1), _upright(0.0, max(values))
    dots = tuple(
        Shape(_dot(x.at(index), y.at(value)), "dot s1", f"{label}: {figures.quantity(name, value)}")
        for index, (label, value) in enumerate(points)
    )
    first, last = (figures.quantity(name, value) for value in (values[0], values[-1]))
    return Chart(
        title=title,
        href="",
        said=say("chart.speeds", name=figures.words(name), n=f"{len(points):,}", first=first, last=last),
        rules=_rules(y),
        shapes=(Shape(_polyline(values, x, y), "line s1"), *dots),
        texts=_y_texts(y, name),
    )


def _across(last: float) -> _Axis:
    return _Axis(0, max(last, 1), LEFT, WIDTH - RIGHT)


def _upright(low: float, high: float) -> _Axis:
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return _Axis(low - (margin if low else 0), high + margin, HEIGHT - BOTTOM, TOP)


def _log(share: float) -> float:
    return math.log10(min(max(share, LEAST_SHARE), 1e6))


def _histogram(values: Sequence[float], x: _Axis) -> list[int]:
    bins = min(max(5, round(math.sqrt(len(values)) * 2)), BINS_LIMIT)
    counts = [0] * bins
    for value in values:
        counts[min(int((value - x.low) / (x.high - x.low) * bins), bins - 1)] += 1
    return counts


def _bars(counts: Sequence[int], y: _Axis) -> Iterable[Shape]:
    width = (WIDTH - LEFT - RIGHT) / len(counts)
    for index, count in enumerate(counts):
        if count:
            yield Shape(_box(LEFT + index * width, y.at(count), width - 1, HEIGHT - BOTTOM), "bar s1", f"{count:,}")


def _polyline(values: Sequence[float], x: _Axis, y: _Axis) -> str:
    """Give a line through the finite values, with a gap where one is not."""
    path, pen = [], "M"
    for index, value in enumerate(values):
        if math.isfinite(value):
            path.append(f"{pen}{x.at(index):.1f} {y.at(value):.1f}")
        pen = "L" if math.isfinite(value) else "M"
    return "".join(path)


def _rules(y: _Axis) -> tuple[str, ...]:
    return tuple(_horizontal(y.at(each)) for each in _ticks(y))


def _ticks(y: _Axis, count: int = 4) -> list[float]:
    """Give round numbers inside an axis, about ``count`` of them."""
    rough = (y.high - y.low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(y.low / step)
    return [number * step for number in range(first, math.floor(y.high / step) + 1)]


def _y_texts(y: _Axis, name: str = "") -> tuple[Text, ...]:
    return tuple(
        Text(f"{LEFT - 6}", f"{y.at(each) + 4:.1f}", "end", figures.quantity(name, each) if name else f"{each:.4g}")
        for each in _ticks(y)
    )


def _x_texts(first: str, last: str) -> tuple[Text, ...]:
    return (
        Text(f"{LEFT}", f"{HEIGHT - 6}", "start", first),
        Text(f"{WIDTH - RIGHT}", f"{HEIGHT - 6}", "end", last),
    )


def _horizontal(y: float) -> str:
    return f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}"


def _vertical(x: float) -> str:
    return f"M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"


def _box(x: float, top: float, width: float, bottom: float) -> str:
    return f"M{x:.1f} {bottom:.1f}V{top:.1f}h{width:.1f}V{bottom:.1f}Z"


def _dot(x: float, y: float) -> str:
    return f"M{x - 2.5:.1f} {y:.1f}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0Z"
