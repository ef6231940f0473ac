"""Wrong results made of a right one: a judgement that accepts any is blind, and is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_ascend.precision.canaries import CANARIES, SHARES, Canaries, is_wrong
from pytest_ascend.precision.settings import adjusted, standard_of
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from pytest_ascend.run.reference import cpu_reference

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def judged(actual: Any, expected: Any, **settings: Any) -> tuple[list[str], int]:
    """Return the kinds of canaries that a comparison accepts, and how many it planted."""
    canaries = Canaries("ops/case", [])
    PrecisionCompare(lambda _: None, canaries=canaries)(actual, expected, **settings)
    return canaries.accepted, canaries.planted[0]


def test_zeros_in_place_of_less_than_the_smallest_normal_number_are_right() -> None:
    assert not is_wrong(torch.zeros(3, dtype=torch.float16), torch.full((3,), 2.0**-24, dtype=torch.float16))
    assert is_wrong(torch.zeros(3, dtype=torch.float16), torch.full((3,), 2.0**-13, dtype=torch.float16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_a_judgement_with_limits_of_its_own_accepts_none(dtype: torch.dtype) -> None:
    x = (10 * X).to(dtype)
    accepted, planted = judged([x.flip(0), x.flip(1)], [x.flip(0), x.flip(1)])
    assert accepted == []
    assert planted >= (2 if dtype is torch.bool else 5)


def test_inputs_and_results_of_other_calls_are_planted() -> None:
    judged(X.cos(), cpu_reference(torch.cos, X))  # the last call's result
    accepted, planted = judged(X.exp(), cpu_reference(torch.exp, X))
    assert accepted == []
    assert planted == len(CANARIES) - 1  # it has no neighbour


def test_limits_that_accept_anything_are_blind_by_name() -> None:
    accepted, _ = judged(X, X.double(), standard="torch", limits={"atol": 100.0}, waiver="a test")
    assert {"zeros", "ones", "one element", "one row", "half precision", "shuffled"} <= {*accepted}


def test_only_what_is_no_rounding_is_wrong() -> None:
    assert not is_wrong(X * (1 + 2**-20), X)
    assert not is_wrong(X, X)
    assert is_wrong(-X, X)
    assert is_wrong(torch.tensor([2]), torch.tensor([1]))


MODEL = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
WAYS = {
    "module": lambda compare, **rule: compare.module(MODEL, X, **rule),
    "layers": lambda compare, **rule: compare.layers(MODEL, X, **rule),
    "models": lambda compare, **rule: compare.models(MODEL, MODEL, X, **rule),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_models_results_and_gradients_get_canaries_too(way: str) -> None:
    for number in range(6):
        canaries = Canaries(f"user/{number}", [])
        WAYS[way](PrecisionCompare(lambda _: None, canaries=canaries))
        assert canaries.accepted == []
        assert canaries.planted[0] >= 5


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_that_accepts_any_result_of_a_model_is_blind(way: str) -> None:
    canaries = Canaries("user/model", [])
    anything = adjusted(standard_of("torch"), "float32", {"atol": 1e9}, "a test")
    WAYS[way](PrecisionCompare(lambda _: None, canaries=canaries), standard=anything)
    assert {"zeros", "ones", "one element", "shuffled"} <= {*canaries.accepted}


def test_a_wrong_result_is_rejected_before_canaries_are_planted() -> None:
    canaries = Canaries("ops/case", [])
    with pytest.raises(Disagreement):
        PrecisionCompare(lambda _: None, canaries=canaries)(-X, X)
    assert canaries.planted == [0]


def test_levels_draw_cases_by_their_ids() -> None:
    names = [f"ops/{number}" for number in range(5000)]
    drawn = {level: [each for each in names if Canaries.of(each, level, [])] for level in SHARES}
    assert drawn["smoke"] == []
    assert 0 < len(drawn["standard"]) < 50
    assert drawn["full"] == names
