"""No tensor, however odd, leaves the error model without a limit: whatever is far off is rejected."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ascend.precision import Samples, compare

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

#: What a tensor is made of: values as shares of the dtype's range, so that each is there in every dtype.
KINDS = ("zero", "one", "subnormal", "smallest", "largest", "usual", "nan", "inf", "-inf")


def value(kind, dtype, draw):
    info = torch.finfo(dtype)
    return (
        {
            "zero": 0.0,
            "one": 1.0,
            "subnormal": info.smallest_normal * info.eps,
            "smallest": info.smallest_normal,
            "largest": info.max * (-1.0 if draw(st.booleans()) else 1.0),
            "nan": math.nan,
            "inf": math.inf,
            "-inf": -math.inf,
        }.get(kind)
        if kind != "usual"
        else draw(st.floats(-1e3, 1e3, width=16))
    )


@st.composite
def tensors(draw):
    """An expected tensor of one or a few kinds of values, reference runs of it (or none), and its dtype."""
    dtype = draw(st.sampled_from(DTYPES))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    pattern = [value(kind, dtype, draw) for kind in kinds]
    size = draw(st.sampled_from((0, 1, 2, 7, 31, 33, 70, 300, 1100)))
    expected = torch.tensor((pattern * size)[:size], dtype=torch.float64)
    reference_runs = draw(st.sampled_from(("none", "rounded", "NaN", "zeros", "two")))
    samples = {
        "none": None,
        "rounded": expected.to(dtype),
        "NaN": torch.full((size,), math.nan, dtype=dtype),
        "zeros": torch.zeros(size, dtype=dtype),
        "two": Samples([expected.to(dtype), torch.nan_to_num(expected.to(dtype), 0, 0, 0)]),
    }[reference_runs]
    return expected, samples, dtype, draw(st.sampled_from((None, 1, 64)))


@given(tensors())
@settings(max_examples=150)
def test_a_limit_is_finite_and_the_reference_itself_agrees(case):
    expected, reference_runs, dtype, terms = case
    verdict = compare(expected.to(dtype), expected, reference_runs=reference_runs, accumulation=terms)
    assert verdict.limit is None or math.isfinite(verdict.limit.value)
    if dtype in (torch.float64, torch.float32) and not isinstance(reference_runs, Samples):
        assert verdict.agrees or not torch.equal(expected.to(dtype).double().nan_to_num(), expected.nan_to_num())


@given(tensors(), st.data())
@settings(max_examples=150)
def test_what_is_far_off_is_rejected_wherever_the_reference_is_finite(case, data):
    expected, reference_runs, dtype, terms = case
    shown = (
        []
        if reference_runs is None
        else list(reference_runs)
        if isinstance(reference_runs, Samples)
        else [reference_runs]
    )
    if any(((each.double() - expected).abs() > 0.01 * expected.abs()).any() for each in shown):
        return  # not correct at all
    places = torch.nonzero(expected.isfinite()).reshape(-1)
    if not len(places):
        return
    place = int(data.draw(st.sampled_from(places.tolist())))
    known = expected[expected.isfinite()].abs().max()
    wrong = 1.0 if known == 0 else float(known) * 2.0**40
    largest = torch.finfo(dtype).max
    if wrong > largest:  # as far away as the dtype allows
        wrong = -largest if expected[place] >= 0 else largest
    actual = expected.to(dtype)
    actual[place] = wrong
    if abs(float(actual[place]) - float(expected[place])) <= max(float(known) * 0.5, 0.0):
        return
    verdict = compare(actual, expected, reference_runs=reference_runs, accumulation=terms)
    assert not verdict.agrees, verdict
    assert verdict.limit is None or math.isfinite(verdict.limit.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 6, 100, 100_000])
@pytest.mark.parametrize("wrong", [1.0, 1e-2, "largest"])
def test_nothing_agrees_with_zeros_but_zeros(dtype, size, wrong):
    zeros = torch.zeros(size, dtype=dtype)
    actual = torch.full_like(zeros, torch.finfo(dtype).max if wrong == "largest" else wrong)
    for settings_ in ({"reference_runs": zeros}, {}, {"reference_runs": zeros, "accumulation": 4096}):
        assert not compare(actual, zeros.double(), **settings_).agrees
        assert compare(zeros, zeros.double(), **settings_).agrees
    assert not compare(
        {"a": zeros, "b": actual}, {"a": zeros, "b": zeros}, reference_runs={"a": zeros, "b": zeros}
    ).agrees


def test_nothing_agrees_with_complex_zeros_but_zeros():
    zeros = torch.zeros(6, dtype=torch.complex64)
    assert not compare(torch.ones_like(zeros), zeros.to(torch.complex128), reference_runs=zeros).agrees


def test_correct_errors_where_zero_is_expected_are_the_measure_there():
    reference_runs = 1e-9 * torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert compare(reference_runs.flip(0), torch.zeros(100).double(), reference_runs=reference_runs).agrees
    assert not compare(1e-6 * torch.ones(100), torch.zeros(100).double(), reference_runs=reference_runs).agrees


@pytest.mark.parametrize(("actual", "expected"), [(-1.7e308, 1.7e308), (2e200, 1e200), (2e-100, 1e-100), (1e-300, 0.0)])
@pytest.mark.parametrize("size", [3, 100, 2000, 70_000])
def test_the_ends_of_float64_have_limits_too(actual, expected, size):
    actual, expected = (torch.full((size,), each, dtype=torch.float64) for each in (actual, expected))
    assert not compare(actual, expected).agrees
    assert not compare(actual, expected, reference_runs=expected.clone()).agrees
    assert compare(expected.clone(), expected, reference_runs=expected.clone()).agrees
