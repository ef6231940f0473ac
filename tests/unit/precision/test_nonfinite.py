import math

import pytest
import torch

from pytest_ascend.precision import compare

INF, NAN = math.inf, math.nan


def tensor(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_nan_and_inf_agree_at_the_same_places(value):
    assert compare(tensor(1, value, 2), tensor(1, value, 2, dtype=torch.float64)).agrees


@pytest.mark.parametrize(
    ("ours", "theirs", "rule"),
    [
        (NAN, 1.0, "NaN where a number is expected"),
        (1.0, NAN, "a number where NaN is expected"),
        (INF, 1.0, "+Inf where a number is expected"),
        (INF, -INF, "+Inf where -Inf is expected"),
        (3.4e38, INF, "a number where +Inf is expected"),
        (INF, NAN, "+Inf where NaN is expected"),
    ],
)
def test_anything_else_is_named_with_its_place(ours, theirs, rule):
    verdict = compare(tensor(1, 2, ours), tensor(1, 2, theirs, dtype=torch.float64))
    assert not verdict.agrees
    assert verdict.limit.name == rule
    assert verdict.worst.index == (2,)
    assert verdict.metrics["nonfinite_mismatches"] == 1


def test_one_nan_in_a_million_is_seen():
    expected = torch.randn(1_000_000)
    actual = expected.clone()
    actual[-1] = NAN
    assert not compare(actual, expected).agrees
    assert not compare(expected, actual).agrees


def test_a_reference_beyond_the_dtype_stands_for_inf():
    expected = tensor(1e5, dtype=torch.float64)
    assert compare(tensor(INF, dtype=torch.float16), expected).agrees
    assert not compare(tensor(65504, dtype=torch.float16), expected).agrees


def test_next_to_the_largest_number_both_are_right():
    expected = tensor(65510, dtype=torch.float64)
    assert compare(tensor(INF, dtype=torch.float16), expected).agrees
    assert compare(tensor(65504, dtype=torch.float16), expected).agrees
    assert not compare(tensor(-INF, dtype=torch.float16), expected).agrees


def test_an_overflow_on_the_way_is_right_where_a_reference_run_has_it():
    expected, overflown = tensor(100, dtype=torch.float64), tensor(INF, dtype=torch.float16)
    assert not compare(overflown, expected).agrees
    assert compare(overflown, expected, reference_runs=overflown).agrees


def test_values_beside_nan_are_still_judged():
    assert not compare(tensor(NAN, 1.1), tensor(NAN, 1.0, dtype=torch.float64)).agrees


def test_flushed_subnormals_are_seen():
    expected = tensor(1.0, 2.0**-130, dtype=torch.float64)
    assert compare(expected.float(), expected, reference_runs=expected.float()).agrees
    assert not compare(tensor(1.0, 0.0), expected, reference_runs=expected.float()).agrees


def test_the_sign_of_zero_counts_bitwise_only():
    assert compare(tensor(-0.0), tensor(0.0)).agrees
    assert not compare(tensor(-0.0), tensor(0.0), standard="binary").agrees


@pytest.mark.parametrize(
    ("dtype", "beside", "agrees"),
    [
        (torch.float16, 1, True),
        (torch.bfloat16, 1, False),
        (torch.float32, 1, False),
        (torch.float32, INF, True),
        (torch.bfloat16, 1e39, True),
    ],
)
def test_nan_that_reference_runs_share_is_right_where_an_overflow_may_have_led_to_it(dtype, beside, agrees):
    expected = tensor(beside, 100, dtype=torch.float64)
    spoilt = tensor(beside, NAN, dtype=dtype)
    verdict = compare(spoilt, expected, reference_runs=spoilt)
    assert verdict.agrees is agrees
    assert (verdict.metrics["nan_actual"], verdict.metrics["nan_expected"]) == (1, 0)
    assert agrees or (verdict.limit.name, verdict.worst.index) == ("NaN where a number is expected", (1,))
    assert not compare(spoilt, expected, reference_runs=expected.to(dtype)).agrees


def test_a_number_is_right_where_a_reference_run_overflows():
    expected, overflown = tensor(100, dtype=torch.float64), tensor(NAN, dtype=torch.float16)
    assert compare(expected.half(), expected, reference_runs=overflown).agrees
    assert not compare(tensor(101, dtype=torch.float16), expected, reference_runs=overflown).agrees


def test_reference_runs_without_a_number_allow_nothing():
    expected = torch.linspace(1, 2, 2000, dtype=torch.float64)
    for dtype in (torch.float16, torch.float32):
        nothing = torch.full((2000,), INF, dtype=dtype)
        assert compare(expected.to(dtype), expected, reference_runs=nothing).agrees
        assert not compare((1.1 * expected).to(dtype), expected, reference_runs=nothing).agrees


def test_blocks_with_nan_leave_the_others_judged():
    torch.manual_seed(0)
    expected = 1 + torch.rand(200_000, dtype=torch.float64)
    ulps = 2**-23 * torch.randn(2, 200_000, dtype=torch.float64).mul(2)
    reference_runs, actual = ((expected + each).float() for each in ulps)
    expected[5], reference_runs[5], actual[5] = NAN, NAN, NAN
    assert compare(actual, expected, reference_runs=reference_runs).agrees
    actual[150_000:150_512] = (expected[150_000:150_512] + 12 * 2**-23).float()
    verdict = compare(actual, expected, reference_runs=reference_runs)
    assert not verdict.agrees
    assert "block" in verdict.limit.name


def test_a_wrong_device_that_overflows_at_the_end_of_its_dtype_is_judged_by_its_other_elements():
    largest = torch.finfo(torch.bfloat16).max
    expected = tensor(1, -1, 2, 8, largest, dtype=torch.float64)
    actual = tensor(1.1, -1.1, 2.2, 8.8, INF, dtype=torch.bfloat16)
    reference_runs = expected.to(torch.bfloat16)
    assert not compare(actual, expected, reference_runs=reference_runs, accumulation=1).agrees
