"""A comparison of a rewritten model with its original names what was changed, and accepts correct rewrites."""

from __future__ import annotations

import pytest
import torch

from tests.meta.rewritten_bugs import CHANGES, REWRITES, Pair

#: Changes without an effect among the roundings of bfloat16.
HIDDEN = {
    "wrong eps of a norm (1e-6 for 1e-5)",
    "GELU by tanh",
    "one weight off by a rounding (float32: to half)",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found_in_bfloat16_where_it_is(name: str) -> None:
    change = CHANGES[name]
    pair = Pair.of(change, torch.bfloat16)
    first = pair.compared().first
    if name in HIDDEN:
        assert first is None
        assert pair.effect(change.where) < 0.1
    else:
        assert first is not None
        assert first.label == (change.where or "(model)")


@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_what_bfloat16_hides_is_found_in_float32(name: str) -> None:
    first = Pair.of(CHANGES[name], torch.float32).compared().first
    assert first is not None
    assert first.label == CHANGES[name].where


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", REWRITES)
def test_a_correct_rewrite_is_accepted(name: str, dtype: torch.dtype) -> None:
    report = Pair.of(REWRITES[name], dtype).compared()
    assert report.agrees, "\n".join(report.explain())
