"""Pictures of figures: curves, distributions, layers, rows. The template only places what is worked out here.

A chart is drawn by classes alone (no inline style), so that the policy of the page holds and both themes fit. The
numbers behind it go with it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from pytest_ascend.page.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Text,
    across,
    box,
    dot,
    drawn,
    horizontal,
    polyline,
    rules,
    steps,
    upright,
    vertical,
    x_ends,
    x_labels,
    y_texts,
)
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.runlog import codec
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.phrase import Phrase, say

BINS_LIMIT = 40
#: A distribution is drawn up to so many times the distance of its quartiles above the upper one: a round that was
#: disturbed would leave no room for the others. What lies beyond is in the last column.
FENCE = 4.0
#: A share of a limit below this is drawn as this: the picture is about what comes near it.
LEAST_SHARE = 1e-4
#: Rows of numbers that go with a picture; the log has them all.
ROWS_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A path and the class by which it is drawn; ``label`` is what a pointer that rests on it is told."""

    path: str
    looks: str
    label: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One picture; ``said`` tells in words what it shows, ``legend`` pairs names with the numbers of their colours.

    ``numbers`` is what is drawn as JSON: ``columns`` and ``rows``.
    """

    title: str
    href: str
    said: Phrase
    rules: tuple[str, ...]
    shapes: tuple[Shape, ...]
    texts: tuple[Text, ...]
    numbers: str
    legend: tuple[tuple[Phrase | str, int], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT


def curve(title: str, href: str, stem: str, actual: Sequence[float], expected: Sequence[float]) -> Chart:
    """Draw what a device did step by step over what was expected of it."""
    actual, expected = drawn(actual), drawn(expected)
    finite = [value for value in (*actual, *expected) if math.isfinite(value)] or [0.0]
    x, y = across(len(actual) - 1), upright(min(finite), max(finite))
    distance = max((abs(one - other) for one, other in zip(actual, expected, strict=False)), default=0.0)
    return Chart(
        title=title,
        href=href,
        said=say(
            "chart.curve", name=figures.words(stem), n=f"{len(actual):,}", distance=figures.quantity(stem, distance)
        ),
        rules=rules(y),
        shapes=(Shape(polyline(expected, x, y), "line wide s2"), Shape(polyline(actual, x, y), "line s1")),
        texts=(*y_texts(y), *x_ends("1", f"{len(actual):,}")),
        numbers=_numbers(
            ("step", "actual", "expected"),
            [(index + 1, *pair) for index, pair in enumerate(zip(actual, expected, strict=False))],
        ),
        legend=((say("chart.actual"), 1), (say("chart.expected"), 2)),
    )


def distribution(title: str, href: str, name: str, values: Sequence[float], baseline: Sequence[float] = ()) -> Chart:
    """Draw how large a share of the measurements lies in each span, with median and quartiles.

    ``baseline`` are values of the same from elsewhere, percentiles for instance: they are drawn as an outline.
    """
    values, baseline = drawn(values), drawn(baseline)
    low = min((*values, *baseline))
    x = across(max(_end(each) for each in (values, baseline) if each), low)
    edges = _edges(x, len(values))
    now, before = _shares(values, edges), _shares(baseline, edges)
    y = Axis(0, max((*now, *before)), HEIGHT - BOTTOM, TOP)
    first, middle, third = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    marks = [Shape(vertical(x.at(each)), looks) for each, looks in ((first, "quartile"), (middle, "median"))]
    outline = [Shape(steps(before, y), "line s2")] if baseline else []
    said = {
        "name": figures.words(name),
        "n": f"{len(values):,}",
        "median": figures.quantity(name, middle),
        "low": figures.quantity(name, min(values)),
        "high": figures.quantity(name, max(values)),
    }
    beyond = "≥ " if max((*values, *baseline)) > x.high else ""
    return Chart(
        title=title,
        href=href,
        said=say("chart.beside", then=figures.quantity(name, _middle(baseline)), **said)
        if baseline
        else say("chart.samples", **said),
        rules=(horizontal(HEIGHT - BOTTOM),),
        shapes=(*_bars(now, len(values), y), *marks, Shape(vertical(x.at(third)), "quartile"), *outline),
        texts=x_ends(figures.quantity(name, low), f"{beyond}{figures.quantity(name, x.high)}"),
        numbers=_numbers(
            (f"from ({figures.unit(name)})", "share of samples", *(["share of baseline"] if baseline else [])),
            list(zip(edges, now, before, strict=True) if baseline else zip(edges, now, strict=True)),
        ),
        legend=((say("chart.now"), 1), (say("chart.baseline"), 2)) if baseline else (),
    )


def layers(title: str, href: str, leaves: Sequence[Verdict]) -> Chart | None:
    """Draw which share of its limit each tensor used, in the order of the model; None where none is known."""
    shares = [(leaf.path, leaf.agrees, leaf.metrics.get("limit_used")) for leaf in leaves]
    known = [(path, agrees, share) for path, agrees, share in shares if share is not None and not math.isnan(share)]
    if len(known) < 2:
        return None
    path, _, largest = max(known, key=lambda each: each[2])
    y = Axis(math.log10(LEAST_SHARE), max(0.3, _log(largest)), HEIGHT - BOTTOM, TOP)
    width = (WIDTH - LEFT - RIGHT) / len(known)
    bars = tuple(
        Shape(
            box(LEFT + index * width, y.at(_log(share)), max(width * 0.8, 0.6), HEIGHT - BOTTOM),
            "bar s1" if agrees else "bar bad",
            f"{evidence.line(name)}: {figures.used(share)}",
        )
        for index, (name, agrees, share) in enumerate(known)
    )
    return Chart(
        title=title,
        href=href,
        said=say("chart.layers", n=f"{len(known):,}", path=evidence.line(path), used=figures.used(largest)),
        rules=tuple(horizontal(y.at(each)) for each in (-3, -2, -1, 0)),
        shapes=(*bars, Shape(horizontal(y.at(0)), "limit")),
        texts=tuple(
            Text(f"{LEFT - 6}", f"{y.at(power) + 4:.1f}", "end", figures.used(10.0**power)) for power in (-3, -2, -1, 0)
        ),
        numbers=_numbers(("tensor", "share of its limit"), [(evidence.line(name), share) for name, _, share in known]),
    )


def row(
    title: str,
    href: str,
    said: Phrase,
    name: str,
    points: Sequence[tuple[str, float]],
    *,
    over: str,
    labels: Sequence[str],
) -> Chart:
    """Draw one figure over whatever ``over`` names: batch sizes, steps, combinations.

    ``points`` are pairs of what a place stands for and its figure, ``labels`` the short words below the places.
    """
    values = drawn(value for _, value in points)
    x, y = across(len(points) - 1), upright(0.0, max(values))
    dots = tuple(
        Shape(dot(x.at(index), y.at(value)), "dot s1", f"{label}: {figures.quantity(name, value)}")
        for index, ((label, _), value) in enumerate(zip(points, values, strict=True))
    )
    return Chart(
        title=title,
        href=href,
        said=said,
        rules=rules(y, name),
        shapes=(Shape(polyline(values, x, y), "line s1"), *dots),
        texts=(*y_texts(y, name), *x_labels(x, labels)),
        numbers=_numbers((over, name), points),
    )


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return what is drawn as JSON that a reader can take along, six digits of each number."""
    return codec.dumps(
        {
            "columns": [evidence.line(each) for each in columns],
            "rows": [list(map(_rounded, each)) for each in rows[:ROWS_LIMIT]],
        }
    )


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _log(share: float) -> float:
    return math.log10(min(max(share, LEAST_SHARE), 1e6))


def _end(values: Sequence[float]) -> float:
    """Return where the picture of some values ends."""
    first, _, third = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    fence = third + FENCE * (third - first)
    return min(max(values), fence) if fence > first else max(values)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _edges(x: Axis, count: int) -> list[float]:
    """Return where each span begins."""
    bins = min(max(5, round(math.sqrt(count) * 2)), BINS_LIMIT)
    return [x.low + (x.high - x.low) * index / bins for index in range(bins)]


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Return the share of the values in each span; the last one has all that lies beyond."""
    counts = [0] * len(edges)
    for value in values:
        counts[max(bisect_right(edges, value) - 1, 0)] += 1
    return [count / (len(values) or 1) for count in counts]


def _bars(shares: Sequence[float], count: int, y: Axis) -> Iterable[Shape]:
    width = (WIDTH - LEFT - RIGHT) / len(shares)
    for index, share in enumerate(shares):
        if share:
            place = box(LEFT + index * width, y.at(share), width - 1, HEIGHT - BOTTOM)
            yield Shape(place, "bar s1", f"{round(share * count):,}")
