"""Pictures: every point has its place, whatever the figures."""

import math
import re
from dataclasses import replace

import pytest

from pytest_ascend.records.case import Case
from pytest_ascend.report import chart
from pytest_ascend.report.contents import Run
from pytest_ascend.report.html import render
from pytest_ascend.report.summary import summarise

from . import synthetic
from .test_html import Reader


def numbers(drawn):
    return [float(each) for shape in drawn.shapes for each in re.findall(r"-?\d+(?:\.\d+)?", shape.path)]


def test_a_curve_has_both_lines_and_says_how_far_they_part():
    drawn = chart.curve("m", "#m", "loss", [3.0, 2.0, 1.5], [3.0, 2.0, 1.0])
    assert [shape.looks for shape in drawn.shapes] == ["line wide s2", "line s1"]
    assert str(drawn.said) == "loss, 3 steps; largest difference 0.5"


def test_what_is_not_finite_leaves_a_gap():
    drawn = chart.curve("m", "#m", "loss", [1.0, math.nan, 2.0, math.inf], [1.0, 1.0, 1.0, 1.0])
    assert drawn.shapes[1].path.count("M") == 2
    assert "nan" not in drawn.shapes[1].path


@pytest.mark.parametrize("values", [[5.0], [5.0] * 9, [1.0, 2.0], [float(each) for each in range(1000)], [0.0, 1e12]])
def test_samples_of_any_kind_stay_inside_the_picture(values):
    drawn = chart.samples("b", "#b", "latency_us", values)
    assert all(0 <= each <= chart.WIDTH for each in numbers(drawn))
    assert f"{len(values):,} samples" in str(drawn.said)


def test_every_sample_is_counted_once():
    drawn = chart.samples("b", "#b", "latency_us", [float(each % 17) for each in range(100)])
    assert sum(int(shape.label) for shape in drawn.shapes if shape.label) == 100


def leaves(*shares):
    return [
        {"path": f"layer{index}", "agrees": share <= 1, "metrics": {"limit_used": share}}
        for index, share in enumerate(shares)
    ]


def test_layers_name_the_one_that_used_most_and_mark_those_that_disagree():
    drawn = chart.layers("m", "#m", leaves(0.1, 25.0, 0.0))
    assert "layer1, 25 times" in str(drawn.said)
    assert [shape.looks for shape in drawn.shapes] == ["bar s1", "bar bad", "bar s1", "limit"]
    assert drawn.shapes[1].label == "layer1: 25 times"


def test_layers_without_figures_are_no_picture():
    assert chart.layers("m", "#m", [{"path": "a", "agrees": True, "metrics": {}}] * 9) is None


@pytest.mark.parametrize("share", [math.inf, 1e300])
def test_shares_beyond_measure_stay_inside_the_picture(share):
    assert all(0 <= each <= chart.WIDTH for each in numbers(chart.layers("m", "#m", leaves(0.5, share))))


def test_the_page_draws_the_curves_samples_and_layers_of_a_run():
    case = Case(suite="models", subject="resnet50", property="training", dtype="float32", family="vision")
    record = synthetic.record(case, "passed", synthetic.Random(1))
    series = {"loss_actual": (2.0, 1.0), "loss_expected": (2.0, 1.1), "latency_us": (5.0, 6.0, 7.0), "odd": (math.nan,)}
    record = replace(record, series=series)
    page = Reader(render(summarise(Run(header=synthetic.header([case]), records=(record,)))))
    figures = [text for text in page.texts("figcaption") if text.strip()]
    assert len(page.all("figure")) == 3
    assert any("largest difference 0.1" in text for text in figures)
    assert any("median 6 µs of 3 samples" in text for text in figures)
    assert any("12 tensors" in text for text in figures)
