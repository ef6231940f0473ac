"""Pieces of pictures by themselves: axes, intervals, words, and the numbers behind them."""

from __future__ import annotations

import json
import math

import pytest

from pytest_ascend.page import chart
from pytest_ascend.verdict.phrase import SILENCE, Phrase


def said(phrase: Phrase) -> dict[str, str]:
    return {name: str(value) for name, value in phrase.values.items()}


def test_a_curve_in_words_counts_what_is_outside_of_the_spread() -> None:
    plain = chart.curve("m", "", "loss", [0.1, -0.5] * 600, [0.0] * 1200).caption
    assert (plain.key, said(plain)) == ("chart.curve", {"name": "loss", "n": "1,200", "distance": "0.5"})
    beside = chart.curve("m", "", "loss", [0.1, -0.5, 0.2], [0.0] * 3, spread=([-0.1] * 3, [0.1] * 3)).caption
    assert (beside.key, beside.values["outside"]) == ("chart.curve-spread", "2")


@pytest.mark.parametrize("agrees", [True, False])
def test_a_slow_down_that_disagrees_looks_bad(agrees: bool) -> None:
    drawn = chart.slowdowns("t", [("add", agrees, 0.2, 0.1, 0.3)])
    assert [each.looks for each in drawn.shapes] == [f"{kind} {'s1' if agrees else 'bad'}" for kind in ("line", "dot")]
    assert drawn.caption.values == {"n": "1", "slower": "0" if agrees else "1"}


def test_slow_downs_have_five_per_cent_of_room_on_either_side() -> None:
    *_, low, high = chart.slowdowns("t", [("add", True, 0.01, 0.0, 0.02)]).texts
    assert (low.words, high.words) == ("-5 %", "+5 %")


def test_the_lines_of_a_curve_have_the_colours_of_its_legend() -> None:
    drawn = chart.curve("m", "", "loss", [1.0, 2.0], [1.0, 2.5], spread=([0.9, 1.9], [1.1, 2.6]))
    assert [(words.key, colour) for words, colour in drawn.legend] == [
        ("chart.actual", 1), ("chart.expected", 2), ("chart.spread", 3),
    ]  # fmt: skip
    assert [each.looks for each in drawn.shapes] == ["spread", "spread", "line wide s2", "line s1", "line s1"]
    assert drawn.height == chart.HEIGHT + chart.DIFFERENCE


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ([5.0], "10"),
        ([1.0, 2.0, 3.0], "3"),
        ([*map(float, range(1, 12)), 1000.0], "≥ 35.75"),  # quartiles are 3.25 and 9.75, and four of their ranges above
        ([2.0] * 9, "4"),
        ([2.0] * 9 + [7.0], "7"),  # equal quartiles have no fence
    ],
)
def test_the_end_of_a_distribution_leaves_far_values_out(values: list[float], end: str) -> None:
    assert chart.distribution("t", "", "", values).texts[1].words == end


def test_intervals_and_shares() -> None:
    rows = json.loads(chart.distribution("t", "", "", [10.0, 20.0], [10.0, 12.0, 20.0, 20.0]).numbers)["rows"]
    assert [edge for edge, *_ in rows] == [10, 12, 14, 16, 18]
    assert [share for *_, share in rows] == [0.25, 0.25, 0, 0, 0.5]
    for count, bins in ((100, 20), (10**4, chart.BINS_LIMIT)):
        assert len(json.loads(chart.distribution("t", "", "", [1.0, 2.0] * (count // 2)).numbers)["rows"]) == bins


@pytest.mark.parametrize("baseline", [(), (2.0, 4.0, 6.0)])
def test_a_distribution_in_words(baseline: tuple[float, ...]) -> None:
    drawn = chart.distribution("t", "#h", "latency_us", [1.0, 2.0, 3.0], baseline)
    wanted = {"name": "latency", "n": "3", "median": "2 µs", "low": "1 µs", "high": "3 µs"}
    assert said(drawn.caption) == wanted | ({"then": "4 µs"} if baseline else {})
    assert drawn.caption.key == ("chart.beside" if baseline else "chart.samples")
    assert (drawn.title, drawn.href, len(drawn.legend)) == ("t", "#h", 2 if baseline else 0)
    assert drawn.rules == (chart.horizontal(chart.HEIGHT - chart.BOTTOM),)
    looks = [each.looks for each in drawn.shapes]
    assert (looks.count("quartile"), looks.count("median"), looks.count("line s2")) == (2, 1, bool(baseline))


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(0.0, 10.0, (0.0, 10.5)), (10.0, 20.0, (9.5, 20.5)), (10.0, 10.0, (9.5, 10.5)), (0.0, 0.0, (0.0, 1.0))],
)
def test_an_axis_upwards_has_margins(low: float, high: float, ends: tuple[float, float]) -> None:
    axis = chart.upright(low, high)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert (axis.start, axis.end) == (chart.HEIGHT - chart.BOTTOM, chart.TOP)


@pytest.mark.parametrize(
    ("last", "low", "high"), [(5.0, 0.0, 5.0), (0.0, 0.0, 1.0), (2.0, 2.0, 4.0), (-3.0, -3.0, 0.0)]
)
def test_an_axis_across_has_a_length(last: float, low: float, high: float) -> None:
    assert (chart.across(last, low).low, chart.across(last, low).high) == (low, high)


def test_numbers_that_a_chart_cannot_show() -> None:
    shown = chart.plottable([1.0, 1e150, 2e150, -2e150, 1e-151, math.inf, math.nan])
    assert shown[:2] == [1.0, 1e150]
    assert [math.isnan(each) for each in shown] == [False, False, True, True, False, True, True]
    assert shown[4] == 0.0
    assert not chart.is_plottable([])
    assert chart.is_plottable([1.0])
    assert not chart.is_plottable([1.0, math.nan])


def test_a_line_has_gaps_where_there_is_no_number() -> None:
    x, y = chart.Axis(0, 4, 0, 40), chart.Axis(0, 10, 100, 0)
    assert chart.polyline([0.0, 5.0, math.nan, 10.0, 20.0], x, y) == "M0.0 100.0L10.0 50.0M30.0 0.0L40.0 0.0"


def test_numbers_behind_a_chart_have_six_digits() -> None:
    points = [("x", 1.23456789), ("y", math.inf)] * chart.ROWS_LIMIT
    drawn = chart.row("t", "", SILENCE, "b", points, over="a\n", labels=["x"] * len(points))
    found = json.loads(drawn.numbers)
    assert found["columns"] == [r"a\n", "b"]
    assert found["rows"][:2] == [["x", 1.23457], ["y", "inf"]]
    assert len(found["rows"]) == chart.ROWS_LIMIT
