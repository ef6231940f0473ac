"""What pytest-benchmark measured, in the names and units of a run log, and on its way between processes."""

from __future__ import annotations

import statistics
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_benchmark.stats import Metadata

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import SERIES_POINTS_LIMIT
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import CaseContext

PARAMS = {"p": 1}
SECONDS = [3e-3, 1e-3, 2e-3, 7e-3]


def session(*measured: Any) -> SimpleNamespace:
    options = {"disable_gc": False, "timer": "t", "min_rounds": 1, "max_time": 1.0, "min_time": 1.0, "warmup": False}
    return SimpleNamespace(_benchmarksession=SimpleNamespace(benchmarks=list(measured), options=options))


def told(seconds: list[float] = SECONDS) -> dict[str, Any]:
    return {"group": "g", "extra_info": {"calls_per_round": 3}, "iterations": 2, "seconds": seconds}


def fixture(seconds: list[float]) -> Any:
    kept = session()
    benchmarked.put_back(kept, SimpleNamespace(name="test_x", nodeid="t.py::test_x"), told(seconds))
    return SimpleNamespace(stats=kept._benchmarksession.benchmarks[0])


def taken(benchmark: Any) -> CaseContext:
    context = CaseContext(case=Case(suite="user", subject="x", property="test"), node_id="")
    benchmarked.take(context, benchmark)
    return context


def test_figures_are_in_microseconds_and_the_rounds_counted() -> None:
    context = taken(fixture(SECONDS))
    assert context.measurements == pytest.approx(
        {
            "latency_min_us": 1000,
            "latency_median_us": 1e6 * statistics.median(SECONDS),
            "latency_mean_us": 1e6 * statistics.fmean(SECONDS),
            "rounds": 4,
        }
    )
    assert context.series["latency_us"] == pytest.approx([3000, 1000, 2000, 7000])
    assert len(taken(fixture([1e-6] * (SERIES_POINTS_LIMIT + 1))).series["latency_us"]) == SERIES_POINTS_LIMIT


@pytest.mark.parametrize("nothing", [None, SimpleNamespace(stats=None), SimpleNamespace()])
def test_what_measured_nothing_has_no_figures(nothing: Any) -> None:
    context = taken(nothing)
    assert (context.measurements, context.series) == ({}, {})


def test_what_a_child_measured_is_put_back_as_it_was_and_the_last_attempt_stands() -> None:
    parent = session()
    item = SimpleNamespace(
        name="test_x[a]", nodeid="t.py::test_x[a]", callspec=SimpleNamespace(id="a", params={"p": 1})
    )
    other = SimpleNamespace(name="test_y", nodeid="t.py::test_y")
    for each, seconds in ((item, [1.0]), (other, [5.0]), (item, SECONDS)):
        benchmarked.put_back(parent, each, told(seconds))
    kept: Metadata = parent._benchmarksession.benchmarks[1]
    assert (kept.name, kept.fullname, kept.param, kept.params) == ("test_x[a]", "t.py::test_x[a]", "a", PARAMS)
    assert (kept.group, kept.iterations, kept.has_error) == ("g", 2, False)
    assert [(each.name, each.param) for each in parent._benchmarksession.benchmarks[:1]] == [("test_y", None)]
    assert benchmarked.taken(parent) == [told([5.0]), told()]
    assert benchmarked.taken(parent) == [], "each is taken once"


def test_without_pytest_benchmark_nothing_is_kept() -> None:
    bare = SimpleNamespace()
    benchmarked.put_back(bare, SimpleNamespace(name="x", nodeid="x"), told())
    assert benchmarked.taken(bare) == []
