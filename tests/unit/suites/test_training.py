"""The tables of the training suite belong together."""

from __future__ import annotations

from suites.training import AUTOCAST, FLOAT32, LOWER
from suites.training.test_mixed_precision import CALLS


def test_every_operator_of_autocasts_lists_has_a_call() -> None:
    assert {*AUTOCAST} == CALLS.keys()
    assert not set(FLOAT32) & set(LOWER)
