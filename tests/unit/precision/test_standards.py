import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import STANDARDS, compare, standard_of
from pytest_ascend.precision.floating import RULES

#: Many elements between 1 and 2, some of which are spoilt.
ONE = torch.linspace(1, 2, 10_000, dtype=torch.float64)


def spoilt(error, count=1):
    actual = ONE.float()
    actual[:count] += error
    return actual


@pytest.mark.parametrize(
    ("standard", "error", "count", "agrees"),
    [
        ("mere-mare", 1.0e-3, 1, True),
        ("mere-mare", 1.5e-3, 1, False),
        ("mere-mare", 2.0e-4, 10_000, False),
        ("mixed@current", 0.009, 1, True),
        ("mixed@current", 0.011, 1, False),
        ("mixed@current", 0.005, 90, True),
        ("mixed@current", 0.005, 110, False),
        ("mixed@2026-07", 8e-4, 10_000, True),
        ("mixed@2026-07", 3e-3, 10_000, False),
        ("torch", 1e-5, 1, True),
        ("torch", 2e-5, 1, False),
        ("thousandth", 5.0, 9, True),
        ("thousandth", 5.0, 11, False),
        ("ulp", 5.0, 400, True),
        ("ulp", 5.0, 600, False),
        ("binary", 0.0, 1, True),
        ("binary", 2e-7, 1, False),
    ],
)
def test_each_published_rule_draws_its_line(standard, error, count, agrees):
    expected = ONE.float() if standard == "binary" else ONE
    verdict = compare(spoilt(error, count), expected, standard=standard)
    assert verdict.agrees is agrees
    assert verdict.standard == standard_of(standard).label


def test_the_ratio_to_a_second_device():
    reference_runs = ONE.float() + 1e-3
    assert compare(ONE.float() + 1.4e-3, ONE, reference_runs=reference_runs, standard="benchmark-ratio-L1").agrees
    assert not compare(ONE.float() + 1.6e-3, ONE, reference_runs=reference_runs, standard="benchmark-ratio-L1").agrees
    assert not compare(ONE.float() + 1.4e-3, ONE, reference_runs=reference_runs, standard="benchmark-ratio-L2").agrees


def test_small_values_are_counted_apart_by_the_ratio_to_a_second_device():
    expected = torch.cat([ONE, torch.full((100,), 2**-21, dtype=torch.float64)])

    def off(count):
        actual = expected.float()
        actual[len(ONE) : len(ONE) + count] += 2**-28
        return actual

    assert compare(off(20), expected, reference_runs=off(10), standard="benchmark-ratio-L2").agrees
    verdict = compare(off(21), expected, reference_runs=off(10), standard="benchmark-ratio-L2")
    assert verdict.limit.name.startswith("share of small values")
    assert not compare(off(1), expected, reference_runs=off(0), standard="benchmark-ratio-L0").agrees


def test_every_row_names_its_source_and_a_rule_that_exists():
    for row in STANDARDS.values():
        assert row.source
        assert row.rule == "model" or row.rule in RULES
        assert row.upper <= {key for numbers in row.limits.values() for key in numbers}


def test_a_bare_name_is_the_last_revision():
    assert standard_of("mixed").revision == "current"
    assert standard_of(None).name == "error-model"


def test_a_dtype_that_a_rule_does_not_know_is_said():
    with pytest.raises(UsageError, match="says nothing about float64"):
        compare(torch.ones(1).double(), torch.ones(1).double(), standard="mere-mare")
