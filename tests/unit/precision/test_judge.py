"""Each rule of the judge by itself, just within and just beyond its limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pytest_ascend.precision.error_model import (
    BIASED_FROM,
    FEW,
    ErrorModel,
    Finding,
    Limits,
    _bias,
    _blocks,
    _few_elements,
    _rounding,
    _says_nothing_on_bias,
    _with_zero,
    biases,
    inner_by_model,
    judge_by_model,
    judge_quickly,
    octaves,
)
from pytest_ascend.precision.errors import Measurement, Nonfinite, block_size, measure
from pytest_ascend.precision.formats import ALLOWANCES, FORMATS
from pytest_ascend.precision.settings import Request, Setting, standard_of
from pytest_ascend.precision.tallies import ZERO_EXPONENT, Entries, Sums

USE, SINGLE = ALLOWANCES, FORMATS[torch.float32]
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "limit", "used"),
    [
        (1, 2, 0.5),
        (2, 2, 1),
        (3, 2, 1.5),
        (0, 0, 0),
        (1e-300, 0, INF),
        (NAN, 1, INF),
        (1, NAN, INF),
        (1, INF, 0),
        (INF, INF, INF),
    ],
)
def test_how_much_of_a_limit_is_used_up(value: float, limit: float, used: float) -> None:
    found = Finding(rule="x", value=value, limit=limit)
    assert (found.used, found.is_broken) == (used, used > 1)


def of(**fields: Any) -> Setting:
    asked = {name: fields.pop(name) for name in ("accumulation", "scale", "branching", "sampled") if name in fields}
    request = Request(standard=standard_of(None), **asked)
    return Setting(**{"format": SINGLE, "root_mean_square": 1.0, "request": request, **fields})


def look(count: int = 1000, **fields: float) -> Sums:
    return Sums(SINGLE, count=count, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [0.999, 1.001])
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"ulp_max": 1.9}, "largest error in ulp"),
        ({"ulp_square_sum": 1000 * 0.75**2}, "root mean square error in ulp"),
        ({"outward_sum": 200.0}, "mean signed error in ulp"),
        ({"outward_sum": -200.0}, "mean signed error in ulp"),
        ({"upward_sum": 200.0}, "mean signed error in ulp"),
        ({"upward_sum": -200.0}, "mean signed error in ulp"),
    ],
)
def test_what_a_rounding_explains_ends_at_each_of_three_limits(fields: dict[str, float], rule: str, by: float) -> None:
    power = 2 if "ulp_square_sum" in fields else 1
    found = _rounding(look(**{name: value * by**power for name, value in fields.items()}), of(), USE)
    assert (found.rule, found.is_broken) == (rule, by > 1)
    assert found.used == pytest.approx(by)
    few = _rounding(look(**{name: value * by**power for name, value in fields.items()}), of(distinct=FEW - 1), USE)
    assert few.is_broken is (by > 1 and "ulp_max" in fields), "no mean is taken over few different values"


def test_mean_signed_errors_are_over_all_elements() -> None:
    assert biases(look(count=10, outward_sum=2.0, upward_sum=-3.0)) == (0.2, -0.3)
    assert biases(look(count=0)) == (0, 0)


@pytest.mark.parametrize(("count", "factor"), [(FEW - 1, USE.sums), (FEW, USE.sums_rms)])
def test_a_first_look_accepts_what_sums_explain_where_no_reference_run_decides(count: int, factor: float) -> None:
    setting = of(accumulation=1000)
    limit = float(inner_by_model(setting, np.array([-100_000]), USE, factor)[0])
    for by in (0.999, 1.001):
        seen = look(count=count, abs_max=limit * by, ulp_max=50.0)
        found = judge_quickly(seen, setting, USE, has_reference_runs=False)
        assert (found is not None) is (by < 1)
        assert judge_quickly(seen, setting, USE, has_reference_runs=True) is None
    near = look(count=count, abs_max=limit * 0.5, ulp_max=2.0)  # where a shared direction would be seen
    assert (judge_quickly(near, setting, USE, has_reference_runs=False) is None) is (count >= FEW)
    rounded = judge_quickly(look(count=count, ulp_max=1.8), setting, USE, has_reference_runs=True)
    assert rounded is not None
    assert rounded.rule == "largest error in ulp"


@pytest.mark.parametrize(
    ("dtype", "terms", "shared"),
    [
        (torch.float32, 1, False),
        (torch.float32, 2, True),
        (torch.float32, None, False),
        (torch.float16, 1 << 20, True),
        (torch.bfloat16, 1 << 20, False),
    ],
)
def test_long_sums_share_their_errors(dtype: torch.dtype, terms: int | None, shared: bool) -> None:
    """Half a root of the terms, in float32's 2**-24, beside a quarter of the mean that roundings may share."""
    assert _says_nothing_on_bias(BIASED_FROM, of(format=FORMATS[dtype], accumulation=terms), USE) is shared


def table(*octave_counts: int, zero_ulps: float = 0.0) -> Entries:
    exponents = np.repeat(np.arange(len(octave_counts)), octave_counts)
    exponents = np.append(exponents, -ZERO_EXPONENT)
    ulps = np.append(np.ones(exponents.size - 1), zero_ulps)
    return Entries(exponents, ulps, ulps, np.ones(exponents.size, np.int64))


def test_an_infinite_error_of_a_reference_run_explains_nothing() -> None:
    def two(*ulps: float) -> Sums:
        sums = Sums(SINGLE, count=2)
        sums.spread.add(np.full(2, ZERO_EXPONENT), np.array(ulps))
        return sums

    def judged(*ulps: float) -> Finding:
        return _few_elements(Measurement(two(1.0, 3.0), [two(*ulps)], Nonfinite()), of(), USE)

    assert not judged(0.5, 2.5).is_broken
    assert judged(INF, INF).is_broken


@pytest.mark.parametrize(
    ("counts", "reaches"), [((1, 1, 1), 1), ((63, 1, 1), 2), ((64, 1, 1), 1), ((62, 1, 1), 3), ((10, 20, 400), 3)]
)
def test_where_zero_is_expected_the_lowest_64_elements_say_what_may_come(counts: tuple[int, ...], reaches: int) -> None:
    device = octaves([table(*counts)], SINGLE, 0, 3)
    allowed = Limits(0, np.array([1.0, 2.0, 4.0]))
    model, sampled = (ErrorModel(None, of(sampled=each), np.arange(3), USE) for each in (False, True))
    assert _with_zero(allowed, model, [table(*counts)], device).zero == [1.0, 2.0, 4.0][reaches - 1]
    shown = [table(*counts, zero_ulps=each / SINGLE.tiniest) for each in (3.0, 5.0)]
    assert _with_zero(allowed, model, shown, device).zero == pytest.approx(5 * USE.largest)
    assert _with_zero(allowed, sampled, shown, device).zero == pytest.approx(5 * USE.sampled_largest)
    nothing = Limits(0, np.zeros(3))
    assert _with_zero(nothing, model, [], device).zero == SINGLE.tiniest


def measured(actual: torch.Tensor, expected: torch.Tensor, *runs: torch.Tensor) -> Measurement:
    return measure(actual, expected, runs, SINGLE)


def in_ulps(found: torch.Tensor, expected: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return signed errors of values from 1 to 2."""
    return ((found.double() - expected) * 2.0**23).numpy()


@pytest.mark.parametrize("count", [BIASED_FROM - 1, BIASED_FROM, 5000])
def test_hardly_wrong_results_are_not_all_rounded_the_same_way(count: int) -> None:
    numbers = torch.Generator().manual_seed(1)
    expected = 1 + torch.rand(count, generator=numbers, dtype=torch.float64) * 0.9
    rounded = expected.float()
    upwards = torch.nextafter(rounded, torch.tensor(2.0))
    found = _bias(measured(upwards, expected, rounded), of(distinct=count), USE)
    shown, chance = abs(in_ulps(rounded, expected).mean()), 1.8 / math.sqrt(count)
    assert found.value == pytest.approx(
        np.clip(in_ulps(upwards, expected), -1, 1).mean(), rel=1e-5
    )  # one tells no more
    assert found.limit == pytest.approx(0.2 + 3.5 * shown + chance if count >= BIASED_FROM else INF, rel=1e-4)
    assert _bias(measured(upwards, expected), of(distinct=count), USE).limit == pytest.approx(
        0.2 + chance if count >= BIASED_FROM else INF
    )
    noisy = (expected + 2.0**-23 * 5 * torch.randn(count, generator=numbers)).float()
    assert _bias(measured(upwards, expected, rounded, noisy), of(distinct=count), USE).limit == INF
    assert _bias(measured(noisy, expected), of(distinct=count), USE).limit == INF, "far from any rounding"
    assert _bias(measured(upwards, expected, rounded), of(distinct=FEW - 1), USE).limit == INF
    assert _bias(measured(upwards, expected, rounded), of(distinct=count, accumulation=2), USE).limit == INF


@pytest.mark.parametrize("accumulation", [None, 16])
def test_a_block_may_be_as_wrong_as_four_times_the_worst_of_reference_runs(accumulation: int | None) -> None:
    numbers = torch.Generator().manual_seed(2)
    expected = 1 + torch.rand(1024, generator=numbers, dtype=torch.float64) * 0.9
    ulp = 2.0**-23
    runs = [(expected + each * ulp * torch.randn(1024, generator=numbers)).float() for each in (8, 6)]
    actual = (expected + 8 * ulp * torch.randn(1024, generator=numbers)).float()
    actual[512:768] = (expected + 50 * ulp * torch.randn(1024, generator=numbers)).float()[512:768]
    setting = of(distinct=1024, accumulation=accumulation)
    found = _blocks(measured(actual, expected, *runs), setting, USE)
    squares = [np.square(in_ulps(each, expected)).reshape(4, 256).mean(1) for each in (actual, *runs)]
    limit = (0.75 + 4 * math.sqrt(max(map(np.max, squares[1:])) - 1 / 12)) * ulp
    limit += 0.5 * 4 * 2.0**-24 * 2 if accumulation else 0
    assert (found.block, found.rule) == (2, "root mean square error of one block")
    assert found.value == pytest.approx(math.sqrt(squares[0][2]) * ulp, rel=1e-4)
    assert found.limit == pytest.approx(limit, rel=1e-4)
    for nothing in (
        replace(setting, distinct=FEW - 1),
        replace(setting, request=replace(setting.request, branching=True)),
    ):
        assert _blocks(measured(actual, expected, *runs), nothing, USE).limit == INF
    assert _blocks(measured(actual, expected), setting, USE).limit == INF
    assert judge_by_model(measured(actual, expected, *runs), setting).is_broken


@pytest.mark.parametrize(("elements", "size"), [(1, 256), (1 << 25, 256), ((1 << 25) + 1, 512), (1 << 26, 512)])
def test_blocks_are_larger_in_large_tensors(elements: int, size: int) -> None:
    assert block_size(elements) == size
