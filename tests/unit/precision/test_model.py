"""The error model's tables: how far few errors understate their scale, and how errors are counted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.precision.error_model import (
    FEW,
    ErrorModel,
    Limits,
    Octaves,
    cancelled,
    chance_of,
    few,
    inner_by_model,
    octaves,
    sliding_max,
    sliding_sum,
)
from pytest_ascend.precision.formats import ALLOWANCES, FORMATS, Allowances
from pytest_ascend.precision.settings import Request, Setting, standard_of
from pytest_ascend.precision.tallies import EXACT_UP_TO, Entries, Spread, percentile

scipy_stats = pytest.importorskip("scipy.stats")
SINGLE = FORMATS[torch.float32]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 21, 31, 32, 33, 48, 63, 64])
def test_the_factor_for_few_errors_is_the_quantile_of_chi_square(count: int) -> None:
    exact = np.sqrt(count / scipy_stats.chi2.ppf(ALLOWANCES.luck, count))
    assert few(np.array([float(count)]))[0] == pytest.approx(exact, rel=0.06)


def test_the_factor_falls_with_the_count_and_stays_from_where_errors_are_not_independent_on() -> None:
    factors = few(np.arange(1.0, 1200.0))
    assert (np.diff(factors) <= 0).all()
    assert set(factors[ALLOWANCES.independent - 1 :]) == {factors[ALLOWANCES.independent - 1]}


@pytest.mark.parametrize("count", [1, 4, 8, 16, 64])
def test_few_exact_results_may_have_an_error_that_they_do_not_show(count: int) -> None:
    """A standard deviation of 0.3 ulp of up to 8 of them, 0.3 * 8 / count of more, with the usual factors."""
    exact = octaves([spread(([1.0] * count, [0.0] * count)).entries()], SINGLE, 0, 1)
    setting = of(root_mean_square=1e9, distinct=count)
    (limit,) = ErrorModel(exact, setting, np.array([0]), ALLOWANCES).limits(count).element
    assumed = 0.3 * min(1, 8 / count) * np.sqrt(count / scipy_stats.chi2.ppf(ALLOWANCES.luck, count))
    ulps = ALLOWANCES.element_ulps + chance_of(count, ALLOWANCES) * assumed
    assert limit == pytest.approx(ulps * 2.0**-23, rel=0.06)


def spread(*chunks: tuple[list[float], list[float]]) -> Spread:
    """Count errors in ulp of expected values, chunk by chunk."""
    made = Spread()
    for expected, ulps in chunks:
        made.add(np.array(expected).view(np.int64) >> 52, np.array(ulps))
    return made


def counted(made: Spread) -> dict[int, tuple[int, float]]:
    """Return number and largest error of the elements of each octave."""
    entries, found = made.entries(), {}
    for exponent, lower, count in zip(entries.exponents, entries.lower, entries.counts, strict=True):
        number, largest = found.get(int(exponent), (0, 0.0))
        found[int(exponent)] = (number + int(count), max(largest, float(lower)))
    return found


MANY = EXACT_UP_TO + 1


@pytest.mark.parametrize("size", [1, 40, EXACT_UP_TO, MANY])
@pytest.mark.parametrize("order", [(0, 10, -10), (10, -10, 0), (-10, 10, 0), (0, -10, 10)])
def test_later_chunks_widen_the_table_to_both_sides(size: int, order: tuple[int, ...]) -> None:
    chunks = [([1.5 * 2.0**exponent] * size, [2.0] * size) for exponent in order]
    assert counted(spread(*chunks)) == dict.fromkeys(order, (size, 2.0))
    merged = Spread()
    for chunk in chunks:
        merged.merge(spread(chunk))
    assert counted(merged) == dict.fromkeys(order, (size, 2.0))


def test_few_errors_are_kept_as_they_are_and_many_in_bins_that_hold_them() -> None:
    errors = np.abs(torch.randn(EXACT_UP_TO, generator=torch.Generator().manual_seed(3)).numpy().astype(np.float64))
    few_, many = spread(([1.0] * EXACT_UP_TO, list(errors))), spread(([1.0] * MANY, [*errors, 0.0]))
    assert sorted(few_.entries().lower) == sorted(few_.entries().upper) == sorted(errors)
    entries = many.entries()
    for lower, upper, count in zip(entries.lower, entries.upper, entries.counts, strict=True):
        if lower == 0:  # the lowest bin counts as nothing, and also holds the zero above
            assert (upper, int((errors < 2.0**-8 * 9 / 8).sum())) == (0, count - 1)
        else:
            assert int(((errors >= lower) & (errors < upper)).sum()) == count
            assert upper / lower <= 1 + 1 / 8
    assert percentile(few_.entries(), 0.5) == pytest.approx(float(np.quantile(errors, 0.5)), rel=0.01)


def test_an_error_beyond_all_bins_keeps_its_size() -> None:
    made = spread(([1.0] * MANY, [2.0**45] + [0.0] * EXACT_UP_TO), ([1.0], [2.0**47]), ([1.0], [2.0**44]))
    assert max(made.entries().lower) == 2.0**47


def test_what_an_octave_sums_up_is_what_its_elements_have() -> None:
    made = spread(([1.5, 1.25, 3.0, 0.0], [0.25, 2.5, 4.0, 0.0]))
    seen = octaves([made.entries()], SINGLE, -1, 3)
    ulp = 2.0**-23
    assert seen.count.tolist() == [[0, 2, 1]]  # zeros are left out
    assert seen.ulps_max.tolist() == [[0, 2.0, 3.5]]
    assert seen.excess_max.tolist() == [[0, 2.0 * ulp, 3.5 * 2 * ulp]]
    assert seen.excess_square[0].tolist() == pytest.approx([0, (2 * ulp) ** 2, (7 * ulp) ** 2])
    assert seen.error_max[0].tolist() == pytest.approx([0, 2.5 * ulp, 8 * ulp])
    assert seen.error_square[0].tolist() == pytest.approx([0, (0.25**2 + 2.5**2) * ulp**2, (8 * ulp) ** 2])


def test_results_are_grouped_separately() -> None:
    entries = [spread(([1.5, 3.0], [2.5, 4.0])).entries(), spread(([0.0, 3.0], [1.0, 8.0])).entries()]
    both = octaves(entries, SINGLE, 0, 2)
    for row, each in enumerate(entries):
        alone = octaves([each], SINGLE, 0, 2)
        assert (both.count[row] == alone.count[0]).all()
        assert (both.excess_square[row] == alone.excess_square[0]).all()
        assert (both.error_max[row] == alone.error_max[0]).all()


USE = Allowances(
    element_ulps=2, rms_ulps=0.7, approximation_ulps=5, largest=3, sampled_largest=2, sampled_few=1.5, sampled_ulps=4,
    rms=2.5, independent=64, sums=6, sums_rms=0.25, terms=900, short_roundings=7, branch_element=0.3, branch_rms=0.01,
)  # fmt: skip


def of(**fields: Any) -> Setting:
    asked = {name: fields.pop(name) for name in ("accumulation", "scale", "branching", "sampled") if name in fields}
    request = Request(standard=standard_of(None), **asked)
    return Setting(**{"format": SINGLE, "root_mean_square": 3.0, "request": request, **fields})


def limit_beside(inner: float, **fields: bool) -> float:
    """Return the limit in ulp beside runs of a function of single elements, the largest with this inner error."""
    ulps = np.zeros(USE.independent)
    ulps[0] = inner + 0.5
    runs = octaves([Entries(np.zeros(ulps.size, np.int64), ulps, ulps, np.ones(ulps.size, np.int64))], SINGLE, 0, 1)
    model = ErrorModel(runs, of(accumulation=1, **fields), np.array([0]), USE)
    return float(model.limits(ulps.size).element[0] / 2.0**-23)


@pytest.mark.parametrize(
    ("fields", "inner", "allowed"),
    [
        ({}, 0.25, 2),  # a rounding alone explains as much
        ({}, 0.75, 1 + 1.5),
        ({"approximated": True}, 0.75, 4),
        ({"approximated": True}, 1.75, 1 + 3.5),
    ],
)
def test_a_rounding_is_added_to_an_inner_error(fields: dict[str, bool], inner: float, allowed: float) -> None:
    assert limit_beside(inner, sampled=True, **fields) == allowed


def test_more_is_allowed_beside_runs_that_stand_for_all() -> None:
    plain, approximated = limit_beside(0.5), limit_beside(0.5, approximated=True)
    assert plain >= 2 + USE.largest * 0.5
    assert approximated - plain == pytest.approx(5 - 2)
    with np.errstate(over="ignore"):
        assert limit_beside(np.inf) == sys.float_info.max / 2.0**-23


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_the_largest_of_more_normal_errors_may_be_larger(count: int) -> None:
    """In 2n + 1 draws of a normal variable none is expected above sqrt(2 log(2n + 1)); one more is slack."""
    assert chance_of(count, USE) == pytest.approx(2.5 * (np.sqrt(2 * np.log(2 * count + 1)) + 1))


@pytest.mark.parametrize("factor", [6, 0.25])
@pytest.mark.parametrize("finer", [True, False])
def test_sums_may_be_off_by_the_root_of_their_terms(factor: float, finer: bool) -> None:
    """In units of their accumulator, float32's 2**-24 or a finer one; 16-bit formats round on the way as well."""

    def limit(exponent: int = 0, **fields: Any) -> float:
        found = inner_by_model(of(finer=finer, **fields), np.array([exponent]), USE, factor)
        return float(found[0]) / (1 if finer else 2) / factor

    assert limit() == pytest.approx(30 * 2.0**-24 * 3)
    assert limit(exponent=4) == pytest.approx(30 * 2.0**-24 * 32)
    assert limit(accumulation=16) == pytest.approx(4 * 2.0**-24 * 3)
    assert limit(accumulation=16, scale=100.0) == pytest.approx(4 * 2.0**-24 * 100)
    assert limit(format=FORMATS[torch.float64]) == pytest.approx(30 * 2.0**-53 * 3)
    half, steps = FORMATS[torch.float16], 7 / 6 * 2.0**-11 * 3
    assert limit(format=half) == pytest.approx(30 * 2.0**-24 * 3 + steps)
    assert limit(format=half, accumulation=16) == pytest.approx(4 * 2.0**-24 * 3)
    assert np.isfinite(limit(exponent=1023))


def of_octaves(*errors: Sequence[float], lowest: int = 0) -> Octaves:
    """Return octaves with these excesses over half an ulp, in ulp."""
    exponents = np.repeat(np.arange(lowest, lowest + len(errors)), list(map(len, errors)))
    ulps = np.array([0.5 + each for octave in errors for each in octave])
    return octaves([Entries(exponents, ulps, ulps, np.ones(ulps.size, np.int64))], SINGLE, lowest, len(errors))


@pytest.mark.parametrize("accumulation", [None, 1])
def test_errors_of_reference_runs_are_taken_in_the_unit_that_the_rule_has(accumulation: int | None) -> None:
    """Of sums in size, whatever the value; of functions of one element in ulp. The largest counts three times."""
    seen = of_octaves([0.0] * 200, [5.0] * 200)
    model = ErrorModel(seen, of(accumulation=accumulation, distinct=400), np.arange(2), USE)
    ulp = np.array([1.0, 2.0]) * 2.0**-23
    many = few(np.array([64.0]), USE)[0]
    unit = ulp if accumulation == 1 else np.ones(2)
    root = np.sqrt(0.5) * (5 if accumulation == 1 else 10 * 2.0**-23)
    largest = 3 * (5 if accumulation == 1 else 10 * 2.0**-23)
    inner = np.maximum(largest, chance_of(400, USE) * many * root) * unit
    assert model.limits(400).element == pytest.approx(2 * ulp + inner, rel=1e-6)
    rms = model.root_mean_square(0, seen.count[0])
    own = np.array([0, 5]) * (1 if accumulation == 1 else 2.0**-22) * unit
    wide = np.where(2.5 * many * own > 2.5 * ulp, 2.5 * many * np.maximum(own, root * unit), 2.5 * many * own)
    assert rms[1] == pytest.approx(0.7 * ulp[1] + wide[1], rel=1e-6)


def test_without_reference_runs_the_model_of_sums_is_the_limit() -> None:
    setting = of(accumulation=16, branching=True)
    model = ErrorModel(None, setting, np.arange(2), USE)
    ulp, sums = np.array([1.0, 2.0]) * 2.0**-23, np.array([3.0, 4.0]) * 4 * 2.0**-24
    assert model.limits(5).element == pytest.approx(2 * ulp + 6 * sums + 0.3 * 3)
    counts = np.array([3.0, 1.0])
    assert model.root_mean_square(0, counts) == pytest.approx(0.7 * ulp + 0.25 * sums + 0.01 * 3)
    both = np.sqrt((counts * np.square([0.7 * ulp, 0.25 * sums])).sum(1) / 4)
    assert model.root_mean_square(1, counts) == pytest.approx([both.sum() + 0.01 * 3] * 2)
    coarse = ErrorModel(None, of(distinct=FEW - 1), np.arange(1), USE).root_mean_square(0, np.ones(1))
    assert coarse == pytest.approx(2 * 2.0**-23 + 0.25 * 30 * 2.0**-24 * 3)


@given(st.lists(st.floats(0, 9), min_size=1, max_size=30), st.integers(0, 40))
def test_windows_reach_as_far_to_both_sides(values: list[float], reach: int) -> None:
    windows = [values[max(0, place - reach) : place + reach + 1] for place in range(len(values))]
    assert sliding_sum(np.array(values), reach) == pytest.approx(list(map(sum, windows)))
    assert sliding_max(np.array(values), reach).tolist() == list(map(max, windows))


def test_a_limit_is_that_of_the_values_octave_or_of_the_nearest_known() -> None:
    limits = Limits(lowest=-1, element=np.array([1.0, 2.0, 4.0]), zero=7.0)
    assert limits.of(np.array([0.0, -0.5, 0.99, 1.0, -2.0, 3.9, 1e9, 1e-9])).tolist() == [7, 1, 1, 2, 4, 4, 4, 1]


@pytest.mark.parametrize(
    ("inner", "exponent", "is_noise"), [(16, 0, True), (15.9, 0, False), (16, 1, False), (2.0**1009, 1004, False)]
)
def test_what_is_eight_times_smaller_than_its_error_is_what_larger_numbers_left(
    inner: float, exponent: int, is_noise: bool
) -> None:
    square = np.full(2, float(inner) ** 2 if inner < 1e150 else np.inf)
    seen = Octaves(exponent - 1, np.ones((1, 2)), *[square[None]] * 6)
    assert cancelled(seen) == is_noise
