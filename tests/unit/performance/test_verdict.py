"""Slower, not slower, cannot tell: on noise whose size is known."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_ascend.errors import UsageError
from pytest_ascend.performance.verdict import (
    ALARMS,
    ALONE,
    CANNOT_TELL,
    NEGLIGIBLE,
    NOT_SLOWER,
    PAIRED,
    SLOWER,
    Estimate,
    Gate,
    Noise,
    _answer,
    estimate,
    judge,
    line_through,
    noise_of,
    quantile,
    tail,
)

scipy_special, scipy_stats = pytest.importorskip("scipy.special"), pytest.importorskip("scipy.stats")


def at(value: float, error: float = 0.0) -> Estimate:
    return Estimate(value=value, error=error, scale=ALONE)


def runs(value: float = 0.0) -> list[Estimate]:
    return [at(value + each) for each in (-0.003, 0.001, 0.002, 0.0)]


CALM = Noise(variance=0.005**2, degrees_of_freedom=20, line=line_through(runs()))


@pytest.mark.parametrize(
    ("slowdown", "answer"), [(0.0, NOT_SLOWER), (0.01, NOT_SLOWER), (0.1, SLOWER), (0.3, SLOWER), (-0.2, NOT_SLOWER)]
)
def test_a_calm_machine_tells(slowdown: float, answer: str) -> None:
    assert judge(at(math.log1p(slowdown)), runs(), CALM, Gate(benchmarks=40)).answer == answer


def test_a_noisy_machine_cannot_tell() -> None:
    noisy = Noise(variance=0.1**2, degrees_of_freedom=5, line=line_through(runs()))
    assert judge(at(0.05), runs(), noisy, Gate()).answer == CANNOT_TELL


def test_a_run_more_disturbed_than_its_baseline_cannot_tell() -> None:
    assert judge(at(0.06, error=0.05), runs(), CALM, Gate()).answer == CANNOT_TELL


@pytest.mark.parametrize(("error", "usual", "beyond"), [(0.05, 0.03, 0.04), (0.03, 0.05, 0), (0.02, 0.02, 0)])
def test_what_disturbed_a_run_more_than_its_baseline_is_added_to_the_noise(
    error: float, usual: float, beyond: float
) -> None:
    answer = judge(at(0, error), [replace(each, error=usual) for each in runs()], CALM, Gate())
    deviation = math.hypot(math.sqrt(CALM.variance * (1 + 1 / 4)), beyond)
    assert math.log1p(answer.threshold) == pytest.approx(
        max(quantile(1 - ALARMS, 20) * deviation, math.log1p(NEGLIGIBLE))
    )
    assert math.log1p(answer.high) - math.log1p(answer.slowdown) == pytest.approx(quantile(0.95, 20) * deviation)
    assert math.log1p(answer.slowdown) - math.log1p(answer.low) == pytest.approx(quantile(0.95, 20) * deviation)


def test_the_slowdown_is_a_share() -> None:
    answer = judge(at(math.log(1.25)), runs(), CALM, Gate())
    assert answer.slowdown == pytest.approx(0.25, abs=1e-3)
    assert answer.low < 0.25 < answer.high


def test_more_benchmarks_need_more_evidence() -> None:
    one, many = (judge(at(0.0), runs(), CALM, Gate(benchmarks=each)).threshold for each in (1, 1000))
    assert one < many


def test_what_is_detectable_is_detected() -> None:
    rng = np.random.default_rng(1)
    detectable = math.log1p(judge(at(0.0), runs(), CALM, Gate()).detectable)
    noisy = [judge(at(detectable + 0.005 * each), runs(), CALM, Gate()).answer for each in rng.standard_normal(50)]
    assert noisy.count(SLOWER) >= 45


def test_false_alarms_stay_below_what_is_stated() -> None:
    """Ten benchmarks with noise of their own, 40 times: less than one alarm is expected."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(40):
        deviations = 0.01 * np.exp(rng.normal(0, 0.5, 10))
        values = {str(i): list(rng.standard_normal(6) * deviation) for i, deviation in enumerate(deviations)}
        noise, gate = noise_of({name: list(map(at, each)) for name, each in values.items()}), Gate(benchmarks=10)
        for i, deviation in enumerate(deviations):
            now, baseline = at(rng.standard_normal() * deviation), [at(each) for each in values[str(i)]]
            alarms += judge(now, baseline, noise[str(i)], gate).answer == SLOWER
    assert alarms <= 40 * ALARMS * 8


def test_estimates_of_different_kinds_are_not_compared() -> None:
    with pytest.raises(UsageError, match="cannot be compared"):
        judge(Estimate(value=0, error=0, scale=PAIRED), runs(), CALM, Gate())
    with pytest.raises(UsageError, match="nothing"):
        judge(at(0), [], CALM, Gate())


def test_variances_move_towards_what_is_usual() -> None:
    calm = {str(i): [0.0, 0.01, -0.01, 0.005] for i in range(10)}
    found = noise_of({name: list(map(at, each)) for name, each in {**calm, "odd": [0.0, 0.2, -0.2, 0.1]}.items()})
    own = float(np.var([0.0, 0.2, -0.2, 0.1], ddof=1))
    assert found["0"].variance < found["odd"].variance < own
    assert found["odd"].degrees_of_freedom > 3


def test_a_benchmark_measured_once_has_no_noise() -> None:
    assert noise_of({"once": [at(1.0)]}) == {}


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.95, 4, 2.1318), (0.99, 4, 3.7469), (0.999, 30, 3.3852), (0.975, 1, 12.706)],
)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float) -> None:
    assert quantile(probability, freedom) == pytest.approx(expected, rel=1e-4)
    assert tail(expected, freedom) == pytest.approx(1 - probability, rel=1e-3)


def test_what_slows_the_machine_down_cancels_out() -> None:
    rng = np.random.default_rng(3)
    work, load = 100 + rng.exponential(2, 200), np.repeat([1.0, 1.4, 1.0, 1.3], 50)
    calm, loaded = estimate(work, work / 2), estimate(work * load * 1.2, work / 2 * load * 1.2)
    assert calm.scale == PAIRED
    assert loaded.value == pytest.approx(calm.value, abs=0.01)


def test_a_round_elsewhere_in_memory_does_not_count_for_its_place() -> None:
    """Of three rounds at each place one has a peer that happens to be quick, in half of the runs."""
    rng = np.random.default_rng(4)
    work = 20_000 * (1 + 0.01 * rng.random(36))
    usual, lucky = np.full(36, 30_000.0), np.tile([30_000.0, 30_000.0, 20_000.0], 12)
    assert estimate(work, lucky).value == pytest.approx(estimate(work, usual).value, abs=0.01)


def test_without_a_peer_the_quickest_rounds_count() -> None:
    disturbed = [100.0] * 30 + [400.0] * 70
    found = estimate(disturbed)
    assert (found.scale, found.value) == (ALONE, pytest.approx(math.log(100)))


def busy(pace: float, slowdown: float = 0.0) -> Estimate:
    """Return a run on a machine that is busier by ``pace``, which slows the work by three tenths of it more."""
    return Estimate(value=0.1 + 0.3 * pace + math.log1p(slowdown), error=0.0, scale=PAIRED, pace=7 + pace)


def test_how_busy_the_machine_was_is_taken_into_account() -> None:
    baseline = [busy(0.02 * each) for each in range(12)]
    shaken = [replace(each, value=each.value + 0.002 * (-1) ** i) for i, each in enumerate(baseline)]
    noise = noise_of({"conv": shaken})["conv"]
    answers = [judge(busy(*each), shaken, noise, Gate(benchmarks=10)) for each in ((0.2,), (0.0, 0.1), (0.3, 0.1))]
    assert [each.answer for each in answers] == [NOT_SLOWER, SLOWER, SLOWER]
    assert answers[1].slowdown == pytest.approx(0.1, abs=0.01)
    far = judge(busy(3.0), shaken, noise, Gate(benchmarks=10))
    assert far.threshold > 2 * answers[0].threshold, "what nothing in the baseline was like is known less well"


def test_a_line_takes_runs_of_several_paces() -> None:
    few, alike = [busy(0.1 * each) for each in range(4)], [at(0.01 * each) for each in range(12)]
    assert line_through(few).slope == line_through(alike).slope == 0
    assert line_through([busy(0.1 * each) for each in range(8)]).slope == pytest.approx(0.3)
    assert line_through([busy(0.1 * each) for each in range(5)]).slope == 0
    assert line_through([busy(0.1 * each) for each in range(6)]).slope == pytest.approx(0.3)


@pytest.mark.parametrize(("apart", "slope"), [(4.9e-4, 0.0), (5.1e-4, 0.3)])
def test_paces_that_differ_by_less_than_a_clocks_resolution_are_one(apart: float, slope: float) -> None:
    found = line_through([busy(apart * (-1) ** each) for each in range(8)])
    assert found.slope == pytest.approx(slope)
    assert (found.spread > 0, found.runs) == (slope > 0, 8)


def test_a_line_takes_a_degree_of_freedom_more_than_a_mean() -> None:
    level, line = (noise_of({"x": [busy(width * each) for each in range(8)]})["x"] for width in (0.0, 0.1))
    assert (level.degrees_of_freedom, line.degrees_of_freedom) == (7, 6)


def test_the_promise_of_whole_runs() -> None:
    """At most one run in a hundred calls anything slower by mistake, and a slow-down of ten per cent is seen.

    Of a machine with 45 benchmarks whose runs vary by 0.4 to 1.8 %, as they did beside another busy process, and a
    baseline of twelve runs.
    """
    rng, gate, accused, seen, slowed = np.random.default_rng(8), Gate(benchmarks=45), 0, 0, 0
    for _ in range(150):
        deviations = rng.uniform(0.004, 0.018, 45)
        before = {str(i): [at(each) for each in rng.normal(0, own, 12)] for i, own in enumerate(deviations)}
        noise, now = noise_of(before), rng.normal(0, deviations)
        slower = [judge(at(each), before[str(i)], noise[str(i)], gate).answer == SLOWER for i, each in enumerate(now)]
        accused += any(slower)
        tenth = [judge(at(now[i] + math.log(1.1)), before[str(i)], noise[str(i)], gate) for i in range(45)]
        seen, slowed = seen + sum(each.answer == SLOWER for each in tenth), slowed + 45
    assert accused <= 4  # 1.5 are allowed on average; five or more of 150 have a probability of 2 %
    assert seen >= 0.95 * slowed


@pytest.mark.parametrize(
    ("difference", "high", "told"),
    [(0.031, 0.9, SLOWER), (0.03, 0.9, CANNOT_TELL), (0.03, 0.04, NOT_SLOWER), (0.03, math.log1p(0.05), CANNOT_TELL)],
)
def test_at_a_limit_the_weaker_answer_is_given(difference: float, high: float, told: str) -> None:
    assert _answer(difference, 0.03, high, Gate(tolerance=0.05)) == told


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 0.0], [1.0, float("nan")]])
def test_senseless_times_are_refused(times: list[float]) -> None:
    with pytest.raises(UsageError, match="cannot be estimated"):
        estimate(times)


rounds = st.lists(st.floats(1, 1e4), min_size=2, max_size=200)


@given(rounds)
def test_alone_a_run_is_its_quickest_tenth_and_its_error_the_spread_of_the_calmer_blocks(times: list[float]) -> None:
    found, logs = estimate(times), [math.log(each) for each in times]

    def tenth(part: list[float]) -> float:
        return statistics.fmean(sorted(part)[: max(1, round(len(part) / 10))])

    assert found.value == pytest.approx(tenth(logs), abs=1e-12)
    count = min(8, len(logs) // 2)
    if count < 2:
        assert found.error == math.inf
        return
    longer = len(logs) % count  # blocks that have a round more than the others
    size = len(logs) // count
    ends = [place * size + min(place, longer) for place in range(count + 1)]
    blocks = [tenth(logs[a:b]) for a, b in itertools.pairwise(ends)]
    apart = sorted(abs(each - statistics.median(blocks)) for each in blocks)[: max(2, count // 2)]
    error = math.sqrt(statistics.fmean(each**2 for each in apart) / count)
    assert found.error == pytest.approx(error, abs=1e-12)
    assert (found.scale, found.pace) == (ALONE, 0)


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), min_size=3, max_size=200))
def test_beside_a_peer_a_run_is_the_median_over_its_places(pairs: list[tuple[float, float]]) -> None:
    work, peers = zip(*pairs, strict=True)
    found = estimate(work, peers)
    count = max(1, min(32, len(pairs) // 3))
    longer, size = len(pairs) % count, len(pairs) // count
    ends = [place * size + min(place, longer) for place in range(count + 1)]
    ratios = [math.log(a) - math.log(b) for a, b in pairs]
    places = [statistics.median(ratios[a:b]) for a, b in itertools.pairwise(ends)]
    middle = statistics.median(places)
    assert (found.value, found.scale) == (pytest.approx(middle, abs=1e-12), PAIRED)
    assert found.pace == pytest.approx(statistics.median(map(math.log, peers)), abs=1e-12)
    deviation = 1.4826 * statistics.median(abs(each - middle) for each in places)
    error = deviation * math.sqrt(math.pi / 2 / count) if count > 1 else math.inf
    assert found.error == pytest.approx(error, rel=1e-4, abs=1e-12)


def test_rounds_and_peers_go_in_pairs() -> None:
    with pytest.raises(UsageError, match="3 rounds and 2 of the peer"):
        estimate([1.0, 2.0, 3.0], [1.0, 2.0])


def test_noise_is_what_regression_leaves_and_grows_with_the_distance_from_the_paces_that_were() -> None:
    rng = np.random.default_rng(5)
    paces = rng.normal(7, 0.1, 12)
    values = 1 + 0.3 * paces + rng.normal(0, 0.01, 12)
    measured = [Estimate(value=v, error=0, scale=PAIRED, pace=p) for v, p in zip(values, paces, strict=True)]
    noise = noise_of({"one": measured})["one"]
    fit = scipy_stats.linregress(paces, values)
    left = values - fit.intercept - fit.slope * paces
    assert noise.variance == pytest.approx(left @ left / 10)
    assert noise.degrees_of_freedom == 10
    for pace in (6.9, 7.0, 7.5):
        assert noise.line.at(pace) == pytest.approx(fit.intercept + fit.slope * pace)
        beyond = (pace - paces.mean()) ** 2 / ((paces - paces.mean()) ** 2).sum()
        assert noise.line.uncertainty(pace) == pytest.approx(1 + 1 / 12 + beyond)


def test_few_runs_leave_the_variance_around_their_mean() -> None:
    noise = noise_of({"one": [at(each) for each in (0.0, 0.01, 0.03)]})["one"]
    assert noise.variance == pytest.approx(np.var([0, 0.01, 0.03], ddof=1))
    assert noise.degrees_of_freedom == 2
    assert noise.line.uncertainty(99.0) == pytest.approx(1 + 1 / 3)
    calm = noise_of({"one": [at(0.0)] * 4})["one"]
    assert calm.variance == pytest.approx(5e-4**2), "a clock's resolution is no calm"


@pytest.mark.parametrize(("prior", "deviation"), [(4.0, 0.01), (20.0, 0.002)])
def test_what_is_usual_on_a_machine_is_found_from_its_benchmarks(prior: float, deviation: float) -> None:
    """Variances of 400 benchmarks, drawn as the model says: scaled inverse chi-square around what is usual."""
    rng = np.random.default_rng(6)
    own = deviation * np.sqrt(prior / rng.chisquare(prior, 400))
    drawn = {str(place): list(map(at, each * rng.standard_normal(8))) for place, each in enumerate(own)}
    found = noise_of(drawn)
    known_with = {noise.degrees_of_freedom - 7 for noise in found.values()}
    assert len(known_with) == 1
    (known,) = known_with
    assert prior * 0.6 < known < prior * 1.8
    variances = np.array([np.var([each.value for each in runs], ddof=1) for runs in drawn.values()])
    moderated = np.array([found[name].variance for name in drawn])
    usual = (moderated * (7 + known) - 7 * np.maximum(variances, 5e-4**2)) / known
    assert usual == pytest.approx(np.full(400, usual[0]))
    assert usual[0] == pytest.approx(deviation**2, rel=0.25)


def test_variances_that_are_alike_count_as_one() -> None:
    found = noise_of({str(place): list(map(at, (0.0, 0.01, 0.02, 0.03))) for place in range(5)})
    logs_mean_is_low_by = scipy_special.digamma(1.5) - math.log(1.5)  # of three degrees of freedom
    usual = np.var([0, 0.01, 0.02, 0.03], ddof=1) / math.exp(logs_mean_is_low_by)
    assert [noise.variance for noise in found.values()] == pytest.approx([usual] * 5, rel=1e-3)
    assert all(noise.degrees_of_freedom > 1e5 for noise in found.values())


@settings(max_examples=20)
@given(st.floats(0.5, 0.9999), st.one_of(st.floats(1, 200), st.floats(1e4, 1e6)))
@example(0.5, 1.0)
@example(0.5000000000000001, 1.0)
@example(0.75, 1.0)  # its value is 1, where the two ways to the integral meet
def test_quantiles_and_tails_are_students(probability: float, freedom: float) -> None:
    expected = scipy_stats.t.ppf(probability, freedom)
    assert quantile(probability, freedom) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for t in (expected, -expected):
        assert tail(t, freedom) == pytest.approx(scipy_stats.t.sf(t, freedom), rel=1e-4, abs=1e-7)
