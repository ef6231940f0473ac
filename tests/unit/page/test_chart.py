"""Pictures: every point has its place, whatever the figures."""

import itertools
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.page import chart
from pytest_ascend.page.html import render
from pytest_ascend.page.tables import charts
from pytest_ascend.records.case import Case
from pytest_ascend.runlog.contents import Run
from pytest_ascend.verdict.phrase import say
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

from .test_html import Reader


def numbers(drawn):
    return [float(each) for shape in drawn.shapes for each in re.findall(r"-?\d+(?:\.\d+)?", shape.path)]


def points(path):
    """Return the places that a path goes through, of SVG's commands M, L, H, V and h (SVG 1.1, chapter 8.3)."""
    x, y, found = 0.0, 0.0, []
    for command, rest in re.findall(r"([MLHVhaZ])([^MLHVhaZ]*)", path):
        if command == "a":  # of a dot, which ends where it began
            continue
        given = list(map(float, rest.split()))
        if command in "ML":
            x, y = given
        elif command in "Hh":
            x = given[0] + (x if command == "h" else 0)
        elif command == "V":
            y = given[0]
        found.append((x, y))
    return found


@given(st.lists(st.floats(1, 1e3), min_size=2, max_size=60), st.lists(st.floats(1, 1e3), min_size=1, max_size=60))
def test_columns_are_as_high_as_their_share_and_as_wide_as_the_outline_beside_them(values, baseline):
    drawn = chart.distribution("b", "#b", "latency_us", values, baseline)
    rows = json.loads(drawn.numbers)["rows"]
    edges = [
        chart.LEFT + (chart.WIDTH - chart.LEFT - chart.RIGHT) * place / len(rows) for place in range(len(rows) + 1)
    ]
    most, foot = max(share for row in rows for share in row[1:]), chart.HEIGHT - chart.BOTTOM
    tops = [
        [foot - (foot - chart.TOP) * share / most for share in column] for column in list(zip(*rows, strict=True))[1:]
    ]
    bars = [points(shape.path) for shape in drawn.shapes if shape.looks == "bar s1"]
    assert [bar[0][0] for bar in bars] == pytest.approx(
        [edge for edge, row in zip(edges, rows, strict=False) if row[1]], abs=0.1
    )
    assert [bar[1][1] for bar in bars] == pytest.approx([top for top in tops[0] if top < foot], abs=0.1)
    assert all(bar[2][0] - bar[0][0] == pytest.approx(edges[1] - edges[0] - 1, abs=0.1) for bar in bars)
    assert {bar[0][1] for bar in bars} == {bar[3][1] for bar in bars} == {foot}
    (outline,) = (points(shape.path) for shape in drawn.shapes if shape.looks == "line s2")
    assert outline[0] == (chart.LEFT, foot)
    assert [each for each, _ in outline[2::2]] == pytest.approx(edges[1:], abs=0.3)
    assert [each for _, each in outline[1::2]] == pytest.approx(tops[1], abs=0.1)


FEW = [3.0, 2.0, 1.5, 1.0]
PICTURES = {
    "curve": chart.curve("m", "", "loss", FEW, FEW[::-1], spread=([0.9] * 4, [3.1] * 4)),
    "distribution": chart.distribution("b", "", "latency_us", [1.0, *FEW, 90.0], FEW),
    "slowdowns": chart.slowdowns("b", [("add", True, 0.2, -0.1, math.inf)] * 3),
    "row": chart.row(
        "b", "", say("chart.now"), "memory_bytes", [("", each) for each in FEW], over="x", labels=["1"] * 4
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_lines_points_and_words_are_inside_the_picture(name):
    drawn = PICTURES[name]
    places = [place for path in (*drawn.rules, *(each.path for each in drawn.shapes)) for place in points(path)]
    places += [(float(each.x), float(each.y)) for each in drawn.texts]
    assert all(0 <= x <= drawn.width and 0 < y < drawn.height for x, y in places)
    ends = {"start": 1, "middle": 0, "end": -1}
    assert all(0 < float(each.x) + 6 * ends[each.anchor] < drawn.width for each in drawn.texts)
    for one, other in itertools.combinations(drawn.texts, 2):
        assert (one.x, one.y, one.anchor) != (other.x, other.y, other.anchor), "words upon words"


@pytest.mark.parametrize("count", [1, 2, 5, 12, 13, 40])
def test_words_below_an_axis_are_each_below_its_place_and_the_last_ends_there(count):
    axis, words = chart.across(max(count - 1, 1)), [str(each) for each in range(count)]
    found = chart.x_labels(axis, words)
    assert len(found) <= chart.LABELS_LIMIT
    assert [float(each.x) for each in found] == pytest.approx([axis.at(int(each.words)) for each in found], abs=0.05)
    assert [each.anchor == "end" for each in found] == [each.words == str(count - 1) != "0" for each in found]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.booleans())
def test_an_axis_has_a_few_round_numbers_from_one_end_to_the_other(low, length, binary):
    axis = chart.Axis(low, low + length, 0, 1)
    found = chart.ticks(axis, binary=binary)
    step = min(found[1:], default=math.inf) - found[0] if len(found) > 1 else length
    assert 1 <= len(found) <= 5
    assert all(low - 1e-6 <= each <= low + length + 1e-6 for each in found)
    assert found[0] - step < low + 1e-6
    assert found[-1] + step > low + length - 1e-6
    if len(found) > 1:
        digits = math.frexp(step)[0] * 10 if binary else float(f"{step:.6e}".partition("e")[0])
        assert (
            digits == pytest.approx(5)
            if binary
            else digits == pytest.approx(min((1, 2, 5, 10), key=lambda each: abs(each - digits)))
        )


def test_rows_of_benchmarks_do_not_touch_and_the_picture_holds_them():
    found = [(str(each), True, each / 10, each / 10 - 0.05, each / 10 + 0.1) for each in range(-2, 4)]
    drawn = chart.slowdowns("benchmarks", found)
    *names, low, high = drawn.texts
    rows = [points(shape.path) for shape in drawn.shapes if shape.looks == "line s1"]
    assert {second[0][1] - first[0][1] for first, second in itertools.pairwise(rows)} == {chart.SLOWDOWN_ROW}
    assert all(row[0][1] - 12 < float(name.y) < row[0][1] for row, name in zip(rows, names, strict=True))
    assert rows[-1][0][1] + 12 < float(low.y) == float(high.y) < drawn.height
    assert (low.words, high.words) == ("-25 %", "+40 %")
    scale = [
        (x, share) for row, each in zip(rows, found, strict=True) for (x, _), share in zip(row, each[3:], strict=True)
    ]
    unit = (chart.WIDTH - chart.RIGHT - 12) / 0.65
    assert [x for x, _ in scale] == pytest.approx([12 + (share + 0.25) * unit for _, share in scale], abs=0.1)
    assert points(drawn.rules[0])[0][0] == pytest.approx(12 + 0.25 * unit, abs=0.1)


def test_a_curve_has_both_lines_and_says_how_far_they_part():
    drawn = chart.curve("m", "#m", "loss", [3.0, 2.0, 1.5], [3.0, 2.0, 1.0])
    assert [shape.looks for shape in drawn.shapes] == ["line wide s2", "line s1", "line s1"]
    assert str(drawn.caption) == "loss, 3 steps; below, the difference: largest 0.5"


def test_a_curve_shows_how_far_reference_runs_spread_and_counts_the_steps_outside():
    drawn = chart.curve("m", "#m", "loss", [3.0, 2.0, 1.5], [3.0, 2.0, 1.0], spread=([2.9, 1.9, 0.9], [3.1, 2.1, 1.1]))
    assert [shape.looks for shape in drawn.shapes][:2] == ["spread", "spread"]
    assert "outside the reference runs at 1 steps" in str(drawn.caption)


def test_what_is_not_finite_leaves_a_gap():
    drawn = chart.curve("m", "#m", "loss", [1.0, math.nan, 2.0, math.inf], [1.0, 1.0, 1.0, 1.0])
    assert drawn.shapes[1].path.count("M") == 2
    assert "nan" not in drawn.shapes[1].path


@pytest.mark.parametrize("values", [[5.0], [5.0] * 9, [1.0, 2.0], [float(each) for each in range(1000)], [0.0, 1e12]])
def test_samples_of_any_kind_stay_inside_the_picture(values):
    drawn = chart.distribution("b", "#b", "latency_us", values)
    assert all(0 <= each <= chart.WIDTH for each in numbers(drawn))
    assert f"{len(values):,} samples" in str(drawn.caption)


def test_every_sample_is_counted_once():
    drawn = chart.distribution("b", "#b", "latency_us", [float(each % 17) for each in range(100)])
    assert sum(int(shape.label) for shape in drawn.shapes if shape.label) == 100


def tensors(*used):
    return [
        chart.Tensor(
            path=f"layer{place}", agrees=share <= 1, actual=share * 1e-6, reference=1e-6, allowed=1e-6, used=share
        )
        for place, share in enumerate(used)
    ]


def test_a_model_is_one_picture_by_depth_that_names_the_worst_and_marks_what_disagrees():
    drawn = chart.depth("m", "", tensors(0.1, 0.2), tensors(25.0, 0.5))
    assert "4 tensors" in str(drawn.caption)
    assert "layer0, 2,500 %" in str(drawn.caption)
    assert [shape.looks for shape in drawn.shapes] == ["line s3 dashed", "line s2", "line s1", "dot bad"]


def test_a_model_without_errors_is_no_picture():
    assert chart.depth("m", "", tensors(0.0, 0.0), []) is None


@pytest.mark.parametrize("share", [math.inf, 1e300])
def test_errors_beyond_measure_stay_inside_the_picture(share):
    assert all(0 <= each <= chart.WIDTH for each in numbers(chart.depth("m", "", tensors(0.5, 0.4, share), [])))


def test_benchmarks_stand_beside_their_baseline_with_the_interval():
    found = [("add", False, 0.2, 0.1, 0.3), ("mm", True, -0.01, -0.03, math.inf)]
    drawn = chart.slowdowns("benchmarks", found)
    assert "1 are slower" in str(drawn.caption)
    assert [shape.looks for shape in drawn.shapes] == ["line bad", "dot bad", "line s1", "dot s1"]


def test_the_page_draws_the_curves_samples_and_layers_of_a_run():
    case = Case(suite="models", subject="resnet50", property="training", dtype="float32", family="vision")
    record = synthetic.record(case, "passed", synthetic.Random(1))
    series = {"loss_actual": (2.0, 1.0), "loss_expected": (2.0, 1.1), "latency_us": (5.0, 6.0, 7.0), "odd": (math.nan,)}
    record = replace(record, series=series)
    page = Reader(render(summarise(Run(header=synthetic.header([case]), records=(record,)))))
    figures = [text for text in page.texts("figcaption") if text.strip()]
    assert len(page.all("figure")) == 2
    assert any("largest 0.1" in text for text in figures)
    assert any("median 6 µs of 3 samples" in text for text in figures)


def test_the_numbers_behind_a_distribution_are_its_columns():
    drawn = chart.distribution("b", "#b", "latency_us", [1.0, 1.0, 2.0, 3.0], [2.0, 3.0])
    found = json.loads(drawn.numbers)
    assert found["columns"] == ["from (µs)", "share of samples", "share of baseline"]
    assert [row[1] for row in found["rows"]] == [0.5, 0, 0.25, 0, 0.25]
    assert [row[2] for row in found["rows"]] == [0, 0, 0.5, 0, 0.5]


def test_a_baseline_is_drawn_as_an_outline_beside_the_run():
    alone = chart.distribution("b", "#b", "latency_us", [5.0, 6.0, 7.0])
    beside = chart.distribution("b", "#b", "latency_us", [5.0, 6.0, 7.0], [2.0, 3.0, 4.0])
    assert [shape.looks for shape in alone.shapes].count("line s2") == 0
    assert [shape.looks for shape in beside.shapes].count("line s2") == 1
    assert "median of the baseline's runs 3 µs" in str(beside.caption)
    assert [number for _, number in beside.legend] == [1, 2]
    assert all(0 <= each <= chart.WIDTH for each in numbers(beside))


def test_one_disturbed_round_leaves_room_for_the_others():
    usual = [100.0 + each % 10 for each in range(200)]
    drawn = chart.distribution("b", "#b", "latency_us", [*usual, 90_000.0])
    assert drawn.texts[1].words.startswith("≥ ")
    assert "to 90,000 µs" in str(drawn.caption)
    rows = json.loads(drawn.numbers)["rows"]
    assert rows[-1][0] < 200
    assert rows[-1][1] == pytest.approx(1 / 201, rel=1e-4)


def test_numbers_that_are_not_finite_are_named():
    drawn = chart.curve("m", "#m", "loss", [1.0, math.nan], [1.0, 1.0])
    assert json.loads(drawn.numbers)["rows"] == [[1, 1.0, 1.0, 0.0], [2, "nan", 1.0, "nan"]]


def benchmark(**series):
    case = Case(suite="benchmarks", subject="resnet50", property="batch-sizes", dtype="float32", family="models")
    return replace(synthetic.record(case, "passed", synthetic.Random(1)), series=series)


def test_figures_by_batch_and_by_step_are_rows_and_come_first():
    sweep = benchmark(
        latency_us=(1.0, 2.0),
        batch_size=(1.0, 2.0, 4.0),
        latency_by_batch_us=(10.0, 15.0, 30.0),
        memory_by_step_bytes=(2048.0, 4096.0),
    )
    by_batch, by_step, samples = charts([sweep])
    assert json.loads(by_batch.numbers) == {
        "columns": ["batch", "latency_us"],
        "chinese": ["批", "latency_us"],
        "rows": [["1", 10], ["2", 15], ["4", 30]],
    }
    assert str(by_batch.caption) == "latency by batch size, largest batch 4; from 10 µs to 30 µs"
    assert [text.words for text in by_batch.texts][-3:] == ["1", "2", "4"]
    assert str(by_step.caption) == "memory by step, 2 steps; from 2 KiB to 4 KiB"
    assert "2 samples" in str(samples.caption)


@pytest.mark.parametrize(
    ("series", "said", "labels"),
    [
        (
            {"message_bytes": (4096.0, 2.0**21), "bus_bandwidth_by_size_gb_per_s": (0.5, 8.0)},
            "bus bandwidth by size of the message, the largest 2 MiB; from 0.5 GB/s to 8 GB/s",
            ["4 KiB", "2 MiB"],
        ),
        (
            {"rank_count": (1.0, 2.0), "latency_by_ranks_us": (3.0, 4.0)},
            "latency by number of ranks, up to 2; from 3 µs to 4 µs",
            ["1", "2"],
        ),
        (
            {"peak_memory_by_card_bytes": (1024.0, 2048.0)},
            "peak memory by card, 2 cards; from 1 KiB to 2 KiB",
            ["1", "2"],
        ),
    ],
)
def test_figures_of_several_cards_are_rows_by_size_by_ranks_and_by_card(series, said, labels):
    [drawn] = charts([benchmark(**series)])
    assert str(drawn.caption) == said
    assert [text.words for text in drawn.texts][-2:] == labels


def test_the_baseline_of_a_case_stands_in_its_picture_and_the_peer_in_none():
    [drawn] = charts([benchmark(latency_us=(1.0, 2.0), baseline_latency_us=(1.0, 1.5), peer_us=(3.0, 3.0))])
    assert "baseline's runs" in str(drawn.caption)


@pytest.mark.parametrize("sizes", [(), (1.0,), (1.0, 2.0)])
def test_a_row_of_other_length_than_its_places_or_without_sense_is_not_drawn(sizes):
    odd = benchmark(batch_size=sizes, latency_by_batch_us=(1.0, 2.0, 3.0), memory_by_step_bytes=(math.nan,))
    assert charts([odd]) == ()


def test_many_places_are_not_all_labelled():
    axis = chart.across(99)
    assert len(chart.x_labels(axis, [str(each) for each in range(100)])) <= chart.LABELS_LIMIT
