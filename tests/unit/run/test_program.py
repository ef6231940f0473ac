"""A program that shows why a case failed passes and fails as the judge did."""

from __future__ import annotations

import contextlib
import io
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_ascend.records.verdict import Verdict, Worst
from pytest_ascend.run.program import compare_named, passes, worst_leaf

T = torch.tensor
#: What the CPU computes in; where the device's result is given in float64, float32.
_REFERENCE = {torch.float64: torch.float32}
NAN, INF = math.nan, math.inf


def judged(actual: torch.Tensor, expected: torch.Tensor, rule: str, allowed: float, index: Any = (1,)) -> str:
    """Return what a program prints before it exits with 1 where it failed, else with 0."""
    reference = expected.to(_REFERENCE.get(actual.dtype, actual.dtype))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        agrees = passes(actual, expected, (rule, allowed), index, lambda: reference)
    assert agrees is (not said.getvalue() or said.getvalue().endswith("passed\n"))
    return said.getvalue().rstrip()


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("error of one element", 0.5),
        ("error where zero is expected", 0.5),
        ("root mean square error", math.sqrt((0.5**2 + 1) / 3)),
        ("elements that are not equal", 2),
        ("elements that are not bitwise equal", 2),
    ],
)
def test_a_rule_is_followed_to_its_limit(rule: str, found: float) -> None:
    actual, expected = T([1.0, 2.5, 4.0]), T([1.0, 2.0, 3.0], dtype=torch.float64)
    for allowed, word in ((found * 0.999, "FAILED"), (found * 1.001, "passed")):
        assert judged(actual, expected, rule, allowed) == f"{rule}: {found:.6g}, allowed {allowed:.6g}: {word}"


def test_the_element_counts_that_the_judge_named() -> None:
    actual, expected = T([[1.0, 2.5], [9.0, 4.0]]), T([[1.0, 2.0], [3.0, 4.0]])
    assert judged(actual, expected, "error of one element", 0.6, (0, 1)).endswith("passed")
    assert judged(actual, expected, "error of one element", 0.6, (1, 0)).startswith("error of one element: 6,")


@pytest.mark.parametrize(
    ("actual", "expected", "wrong"),
    [
        ((1.0, NAN), (1.0, NAN), 0),
        ((1.0, 2.0), (1.0, NAN), 1),
        ((NAN, NAN), (1.0, NAN), 1),
        ((1.0, -INF), (1.0, INF), 1),
        ((INF, INF), (1.0, INF), 1),
        ((1.0, INF), (1.0, INF), 0),
    ],
)
def test_nan_and_infinity_have_their_places(actual: tuple[float, ...], expected: tuple[float, ...], wrong: int) -> None:
    rule = "elements where NaN or infinity is expected"
    said = judged(T(actual), T(expected, dtype=torch.float64), rule, 0.0, None)
    assert said == f"{rule}: {wrong}, allowed 0: {'FAILED' if wrong else 'passed'}"
    assert judged(T(actual), T(actual), "elements that are not equal", 0.0, None).endswith(": 0, allowed 0: passed")


def test_by_any_other_rule_ten_times_what_the_cpu_is_off_is_allowed() -> None:
    expected = torch.linspace(1, 2, 1000, dtype=torch.float64)
    apart = float((expected.float() - expected).square().mean().sqrt())
    for times, word in ((9.5, "passed"), (10.5, "FAILED")):
        said = judged(expected + times * apart, expected, "share of elements beyond 32 ulp", 0.05)
        assert said.startswith("root mean square error, beside ten times the CPU's own: ")
        assert said.endswith(word)
    assert judged(expected.float(), expected, "error of one element", 0.0, None).endswith("passed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool])
def test_equal_tensors_pass_whatever_they_are_of(dtype: torch.dtype) -> None:
    x = T([0, 1, 3]).to(dtype)
    for rule in ("elements that are not equal", "root mean square error", "another"):
        assert judged(x, x.clone(), rule, 0.0).endswith("passed")


def test_another_shape_fails_and_no_elements_pass() -> None:
    assert not passes(torch.ones(2), torch.ones(0), ("x", 0.0))
    assert passes(torch.ones(0), torch.ones(0), ("x", 0.0))


def test_tensors_by_name_are_listed_from_the_worst_and_judged_by_the_one_that_decided() -> None:
    expected = {"a": torch.ones(3), "b": torch.ones(2), "c": torch.ones(0)}
    actual = {"a": torch.ones(3), "b": torch.tensor([1.0, 1.5]), "c": torch.ones(0)}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert not compare_named(actual, expected, lambda: expected, "b", (1,), ("error of one element", 0.1))
        assert compare_named(actual, expected, lambda: expected, "a", (1,), ("error of one element", 0.1))
    first, second, *_ = said.getvalue().splitlines()
    assert first == "b: largest difference 0.5, 50.00% of its largest value"
    assert second.startswith("a: largest difference 0, 0.00%")


def test_the_part_that_decided_is_the_one_with_the_worst_element() -> None:
    def part(path: str, agrees: bool, place: int) -> Verdict:
        worst = Worst(index=(place,), actual="1", expected="2")
        return Verdict(path=path, agrees=agrees, standard="", headline="", worst=worst)

    right, first, second = part("a", True, 2), part("b", False, 1), part("c", False, 2)
    whole = part("all", False, 2)
    leaves = (right, first, second)
    assert worst_leaf(replace(whole, leaves=leaves)) == second
    assert worst_leaf(replace(whole, worst=None, leaves=leaves)) == first
    assert worst_leaf(whole) == whole
