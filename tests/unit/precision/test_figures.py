"""The figures against exact arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.precision import compare
from pytest_ascend.precision.formats import FORMATS

WIDTHS = {torch.float64: 64, torch.float32: 32, torch.float16: 16}


def values(dtype, least=1):
    number = st.floats(allow_nan=False, allow_infinity=False, width=WIDTHS[dtype], min_value=-1024, max_value=1024)
    return st.lists(st.tuples(number, number), min_size=least, max_size=40)


def exact_ulp(value, form):
    exponent = math.frexp(value)[1] - 1 if value else form.emin
    return Fraction(2) ** (max(exponent, form.emin) - form.digits + 1)


#: Errors in ulp of numbers next to nothing: what is larger may overflow.
HUGE = 10**280


def nearest(value):
    return float(min(value, HUGE))


@pytest.mark.parametrize("dtype", list(WIDTHS))
@given(data=st.data())
def test_the_figures_are_those_of_exact_arithmetic(dtype, data):
    pairs = data.draw(values(dtype))
    actual, expected = (torch.tensor(each, dtype=dtype) for each in zip(*pairs, strict=True))
    metrics = compare(actual, expected, standard="binary").metrics
    errors = [abs(Fraction(a) - Fraction(e)) for a, e in pairs]
    ulps = [error / exact_ulp(e, FORMATS[dtype]) for error, (_, e) in zip(errors, pairs, strict=True)]
    assert metrics["count"] == len(pairs)
    assert metrics["max_abs"] == pytest.approx(float(max(errors)), rel=1e-12)
    assert metrics["mean_abs"] == pytest.approx(float(sum(errors) / len(errors)), rel=1e-12)
    assert nearest(metrics["ulp_max"]) == pytest.approx(nearest(max(ulps)), rel=1e-12)
    assert nearest(metrics["ulp_mean"]) == pytest.approx(nearest(sum(ulps) / len(ulps)), rel=1e-12)
    square = float(sum(error**2 for error in errors) / len(errors))
    assert metrics["rmse"] ** 2 == pytest.approx(square, rel=1e-11, abs=1e-300)


@given(pairs=values(torch.float32))
def test_absolute_figures_are_symmetric(pairs):
    actual, expected = (torch.tensor(each, dtype=torch.float32) for each in zip(*pairs, strict=True))
    one, other = (compare(*each, standard="binary").metrics for each in ((actual, expected), (expected, actual)))
    for name in ("max_abs", "mean_abs", "rmse", "cosine"):
        assert one[name] == pytest.approx(other[name], rel=1e-12)


@given(size=st.floats(1e-9, 1e3), factor=st.floats(1.0, 1e3))
def test_a_larger_error_is_never_judged_better(size, factor):
    expected = torch.linspace(-3, 5, 100, dtype=torch.float64)
    small, large = ((expected + each).float() for each in (size, size * factor))
    assert compare(small, expected).agrees or not compare(large, expected).agrees


@given(pairs=values(torch.float32, least=2))
def test_an_honest_result_always_agrees_with_itself(pairs):
    honest, expected = (torch.tensor(each) for each in zip(*pairs, strict=True))
    assert compare(honest, expected.double(), honest=honest).agrees


def test_the_fast_pass_gives_what_the_exact_one_does():
    torch.manual_seed(0)
    expected = torch.randn(200_000) * torch.logspace(-20, 15, 200_000)
    actual = expected * (1 + 1e-6 * torch.randn(200_000))
    fast, exact = compare(actual, expected).metrics, compare(actual, expected.double()).metrics
    for name in ("max_abs", "mean_abs", "rmse", "ulp_max", "ulp_mean", "mean_rel", "cosine", "ulp_p50", "ulp_p99"):
        assert fast[name] == pytest.approx(exact[name], rel=2e-3), name


def test_shares_and_percentiles():
    expected = torch.ones(1000, dtype=torch.float64)
    actual = torch.ones(1000)
    actual[:100] += 0.004
    metrics = compare(actual, expected).metrics
    assert (metrics["within_0.001"], metrics["within_0.005"]) == (0.9, 1.0)
    assert metrics["ulp_p50"] == 0
    assert metrics["ulp_p99"] == pytest.approx(0.004 * 2**23, rel=1e-3)
