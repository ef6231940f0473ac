"""What a comparison with a baseline says, and when it asks for a second look."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_ascend.performance import baseline as comparing
from pytest_ascend.performance.baseline import Baseline, Choice, Comparison, MeasuredRun
from pytest_ascend.performance.verdict import ALONE, CANNOT_TELL, NOT_SLOWER, SLOWER, Answer, Estimate
from pytest_ascend.records.case import Stack

NAME = "benchmarks/gelu/latency/float32"
RUNS = tuple(MeasuredRun.of([us] * 9) for us in (99.9, 100.0, 100.1, 100.0))
BASELINE = Baseline(
    recorded="then",
    stack=Stack(device="cpu", emulated=False),
    settings={},
    benchmarks={NAME: RUNS, "other": RUNS},
    profiles={NAME: {"aten::mm": 10.0}},
)
CHOICE = Choice(baseline=BASELINE, description="a baseline")


def at(us: float) -> Estimate:
    return Estimate(value=math.log(us), error=0, scale=ALONE)


def never() -> Estimate:
    raise AssertionError("there is nothing to look at twice")


def answer(slowdown: float, p_value: float, name: str = SLOWER) -> Answer:
    return Answer(
        answer=name, slowdown=slowdown, low=slowdown - 0.01, high=slowdown + 0.01, threshold=0.03, detectable=0.05,
        p_value=p_value,
    )  # fmt: skip


@pytest.mark.parametrize(("us", "change"), [(100.0, "0.0 % slower"), (80.0, "20.0 % faster"), (101.0, "1.0 % slower")])
def test_what_is_not_slower_is_looked_at_once(us: float, change: str) -> None:
    found = Comparison(choice=CHOICE, tolerance=0.05).verdict(NAME, at(us), never, remarks=("a remark",))
    assert found is not None
    assert found.agrees
    assert found.headline.startswith(f"not slower: {change} than the baseline (slow-down between ")
    assert (found.path, found.standard) == ("latency", comparing.STANDARD)
    lines = found.message.splitlines()
    assert lines[0] == "compared with a baseline"
    assert lines[-1] == "a remark"
    assert found.limit is not None
    assert (found.limit.name, found.limit.value) == ("slowdown", found.metrics["threshold"])
    shares = [f"{100 * float(found.metrics[name] or 0):.1f} %" for name in ("low", "high", "threshold", "detectable")]
    assert f"between {shares[0]} and {shares[1]})" in found.headline
    assert f"from {shares[2]} on are called slower, and from {shares[3]} on" in lines[1]


def test_what_is_slower_names_what_grew_before_the_remarks() -> None:
    found = Comparison(choice=CHOICE, tolerance=0.05).verdict(
        NAME, at(130), lambda: at(120), remarks=("a remark",), profile={"aten::mm": 30.0}
    )
    assert found is not None
    assert not found.agrees
    assert found.headline.startswith("slower: 20.0 % slower than the baseline"), "the smaller of both"
    assert found.message.splitlines()[-2:] == ["operator aten::mm: 10 -> 30 us", "a remark"]


def test_what_is_only_shown_is_not_looked_at_twice() -> None:
    shown = Comparison(choice=replace(CHOICE, shown_only=True), tolerance=0.05)
    found = shown.verdict(NAME, at(130), never, profile={"aten::mm": 30.0})
    assert found is not None
    assert found.agrees
    assert found.headline.startswith("cannot tell: 30.0 % slower")
    assert "operator aten::mm: 10 -> 30 us" in found.message


def test_the_tolerance_and_the_number_of_benchmarks_are_the_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = []

    def judge(_now: object, _runs: object, _noise: object, gate: object) -> Answer:
        gates.append(gate)
        return answer(0.0, 0.5, NOT_SLOWER)

    monkeypatch.setattr(comparing, "judge", judge)
    Comparison(choice=CHOICE, tolerance=0.07).verdict(NAME, at(100), never)
    assert gates == [comparing.Gate(tolerance=0.07, benchmarks=2)]


@pytest.mark.parametrize(
    ("second", "confirmed"),
    [
        (answer(0.1, 0.04, CANNOT_TELL), True),
        (answer(0.1, 0.06, CANNOT_TELL), False),
        (answer(0.019, 0.0, CANNOT_TELL), False),
        (answer(0.02, 0.0, CANNOT_TELL), True),
        (answer(0.2, 0.001, SLOWER), True),
    ],
)
def test_a_second_look_confirms_with_certainty_and_more_than_nothing(second: Answer, confirmed: bool) -> None:
    first = answer(0.15, 0.0001)
    found = first.confirmed_by(second)
    if confirmed:
        assert found == replace(min(first, second, key=lambda each: each.slowdown), answer=SLOWER)
    else:
        assert found is second


def test_without_a_baseline_nothing_is_compared() -> None:
    none = Comparison(choice=None, tolerance=0.05)
    assert none.of_same_work(NAME, {"flop": 1.0}) is none
    assert none.verdict(NAME, at(100), never) is None
    assert Comparison(choice=CHOICE, tolerance=0.05).verdict("new", at(100), never) is None


def test_a_baseline_of_the_same_work_is_as_it_was() -> None:
    here = Comparison(choice=CHOICE, tolerance=0.05)
    assert here.of_same_work(NAME, {}) is here
    other = here.of_same_work(NAME, {"flop": 1.0})
    assert other.choice is not None
    assert other.choice.shown_only
    assert other.choice.description == "a baseline, shown only: one call did other work: flop not set then, 1.0 now"
