"""The error model's tables: how far few errors understate their scale, and how errors are counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pytest_ascend.precision.formats import ALLOWANCES, FORMATS, Setting
from pytest_ascend.precision.model import ErrorModel, chance_of, few, octaves
from pytest_ascend.precision.spread import EXACT_UP_TO, Spread, octaves_and_inverse, percentile

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
    exact = octaves(spread(([1.0] * count, [0.0] * count)).entries(), SINGLE, 0, 1)
    setting = Setting(format=SINGLE, root_mean_square=1e9, accumulation=None, distinct=count)
    (limit,) = ErrorModel(exact, setting, np.array([0]), ALLOWANCES).limits(count).element
    assumed = 0.3 * min(1, 8 / count) * np.sqrt(count / scipy_stats.chi2.ppf(ALLOWANCES.luck, count))
    ulps = ALLOWANCES.element_ulps + chance_of(count, ALLOWANCES) * assumed
    assert limit == pytest.approx(ulps * 2.0**-23, rel=0.06)


def spread(*chunks: tuple[list[float], list[float]]) -> Spread:
    """Count errors in ulp of expected values, chunk by chunk."""
    made = Spread()
    for expected, ulps in chunks:
        made.add(octaves_and_inverse(np.array(expected), SINGLE)[0], np.array(ulps))
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
    seen = octaves(made.entries(), SINGLE, -1, 3)
    ulp = 2.0**-23
    assert seen.count.tolist() == [1, 2, 1]  # a zero counts with the lowest
    assert seen.ulps_max.tolist() == [0, 2.0, 3.5]
    assert seen.excess_max.tolist() == [0, 2.0 * ulp, 3.5 * 2 * ulp]
    assert seen.excess_square.tolist() == pytest.approx([0, (2 * ulp) ** 2, (7 * ulp) ** 2])
    assert seen.error_max.tolist() == pytest.approx([0, 2.5 * ulp, 8 * ulp])
    assert seen.error_square.tolist() == pytest.approx([0, (0.25**2 + 2.5**2) * ulp**2, (8 * ulp) ** 2])
