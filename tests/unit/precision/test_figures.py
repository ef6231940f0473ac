"""The figures against exact arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ascend.precision import compare
from pytest_ascend.precision.errors import measure, measured_equal
from pytest_ascend.precision.floating import figures
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


def exact_figures(pairs, form):
    """Every figure of these pairs, in fractions up to the last step."""
    count = len(pairs)
    actual, expected = ([Fraction(each) for each in side] for side in zip(*pairs, strict=True))
    gaps = [a - e for a, e in zip(actual, expected, strict=True)]
    errors = [abs(gap) for gap in gaps]
    scaled = [gap / exact_ulp(float(e), form) for gap, e in zip(gaps, expected, strict=True)]
    ulps = sorted(abs(each) for each in scaled)
    outward = [max(-1, min(1, each)) * ((e > 0) - (e < 0)) for each, e in zip(scaled, expected, strict=True)]
    relative = [error / abs(e) if e else Fraction(0) for error, e in zip(errors, expected, strict=True)]
    is_infinite = any(error and not e for error, e in zip(errors, expected, strict=True))
    squares = [sum(each**2 for each in side) for side in (actual, expected)]
    lengths = [Fraction(root(square)) for square in squares]
    product = sum(a * e for a, e in zip(actual, expected, strict=True))
    return {
        "count": count,
        "max_abs": float(max(errors)),
        "mean_abs": float(sum(errors) / count),
        "rmse": root(sum(error**2 for error in errors) / count),
        "max_rel": math.inf if is_infinite else nearest(max(relative)),
        "mean_rel": math.inf if is_infinite else nearest(sum(relative) / count),
        "ulp_max": nearest(ulps[-1]),
        "ulp_mean": nearest(sum(ulps) / count),
        **{f"ulp_p{each:g}": nearest(ulps[math.ceil(each / 100 * count) - 1]) for each in (50.0, 99.0, 99.9)},
        **{f"within_{share:g}": share_within(share, errors, expected) for share in (0.001, 0.005, 0.01)},
        "bias_ulp": float(sum(outward) / count),
        "cosine": float(product / (lengths[0] * lengths[1])) if all(lengths) else math.nan,
    }


def root(value):
    """The square root of a fraction, which may be too small for a float."""
    shift = 2000
    return math.ldexp(math.isqrt(int(value * Fraction(2) ** shift)), 0) / 2.0 ** (shift // 2)


def share_within(share, errors, expected):
    within = sum(error <= share * abs(e) for error, e in zip(errors, expected, strict=True))
    return within / len(errors)


#: Below this, sums of squares vanish in float64.
VANISHING = 1e-140


@pytest.mark.parametrize("dtype", list(WIDTHS))
@given(data=st.data())
def test_the_figures_are_those_of_exact_arithmetic(dtype, data):
    pairs = data.draw(values(dtype))
    actual, expected = (torch.tensor(each, dtype=dtype) for each in zip(*pairs, strict=True))
    metrics = compare(actual, expected, standard="binary").metrics
    wanted = exact_figures(pairs, FORMATS[dtype])
    for name in wanted.keys() - {"cosine"}:
        assert nearest(metrics[name]) == pytest.approx(nearest(wanted[name]), rel=1e-9, abs=VANISHING), name
    if all(max(map(abs, side)) > VANISHING for side in zip(*pairs, strict=True)):
        assert metrics["cosine"] == pytest.approx(wanted["cosine"], abs=1e-9)


@pytest.mark.parametrize(("dtype", "times"), [(torch.float32, 70_000), (torch.float64, 2000), (torch.float16, 70_000)])
@settings(max_examples=25)
@given(data=st.data())
def test_the_figures_of_many_elements_are_those_of_exact_arithmetic(dtype, times, data):
    pairs = data.draw(values(dtype))
    repeats = times // len(pairs)
    tensors = (torch.tensor(each, dtype=dtype).repeat(repeats) for each in zip(*pairs, strict=True))
    metrics = compare(*tensors, standard="binary").metrics
    wanted = exact_figures(pairs, FORMATS[dtype]) | {"count": len(pairs) * repeats}
    for name in wanted.keys() - {"cosine", *(name for name in wanted if name.startswith("ulp_p"))}:
        if wanted[name] < 1e30:  # beyond, float32 overflows on the way
            assert metrics[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-18), name
    if all(max(map(abs, side)) > 1e-15 for side in zip(*pairs, strict=True)):
        assert metrics["cosine"] == pytest.approx(wanted["cosine"], abs=1e-5)


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
def test_a_reference_run_always_agrees_with_itself(pairs):
    reference_runs, expected = (torch.tensor(each) for each in zip(*pairs, strict=True))
    assert compare(reference_runs, expected.double(), reference_runs=reference_runs).agrees


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


@pytest.mark.parametrize("special", [(), (math.nan,), (math.inf, -math.inf, math.nan), (0.0, -0.0)])
@pytest.mark.parametrize("count", [0, 5, 3000])
@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_equal_has_the_figures_of_the_long_way(dtype, count, special):
    x = torch.linspace(-3, 3, count, dtype=torch.float64)
    x[: len(special)] = torch.tensor(special, dtype=x.dtype)[:count]
    x = x.to(dtype)
    at_once = measured_equal(x, x.clone(), FORMATS[dtype])
    assert (at_once is None) == (dtype.itemsize == 1)
    if at_once:
        assert figures(at_once) == pytest.approx(figures(measure(x, x.clone(), [], FORMATS[dtype])))


@pytest.mark.parametrize("other", [[0.0, 1.0, -2.0], [-0.0, 1.0, 2.0]])
def test_what_is_not_equal_goes_the_long_way(other):
    x = torch.tensor([0.0, 1.0, 2.0])
    assert measured_equal(x, torch.tensor(other), FORMATS[x.dtype]) is None
    assert measured_equal(x, x.double(), FORMATS[x.dtype]) is None
    assert not compare(x, torch.tensor(other), standard="binary").agrees
