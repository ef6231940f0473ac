"""A comparison of a rewritten model with its original names what was changed, and accepts correct rewrites."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pytest_ascend.precision import models
from pytest_ascend.precision.layers import INPUTS
from pytest_ascend.precision.whole import ROUNDS
from tests.meta.rewritten_bugs import CHANGES, REWRITES, Pair

#: Changes without an effect among the roundings of bfloat16.
HIDDEN = {
    "wrong eps of a norm (1e-6 for 1e-5)",
    "GELU by tanh",
    "one weight off by a rounding (float32: to half)",
}


#: Changes of up to a few times the noise, and one of each kind above; ``tools.evaluation rewritten`` has the others.
SEEN = ("GELU by sigmoid", "weights of the head 1 % larger", "causal mask left in", "running variance as a deviation")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", SEEN)
def test_a_change_is_found_in_bfloat16_where_it_is(name: str) -> None:
    first = Pair.of(CHANGES[name], torch.bfloat16).compared().first
    assert first is not None
    assert first.label == CHANGES[name].where


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_what_bfloat16_hides_is_found_in_float32(name: str) -> None:
    change = CHANGES[name]
    pair = Pair.of(change, torch.bfloat16)
    assert pair.compared().agrees
    assert pair.effect(change.where) < 0.1
    first = Pair.of(change, torch.float32).compared().first
    assert first is not None
    assert first.label == change.where


def test_a_layer_is_told_to_be_another_function() -> None:
    report = Pair.of(CHANGES["GELU by sigmoid"], torch.bfloat16).compared()
    said = list(report.explain())
    assert said[:2] == ["first wrong layer: blocks.1.mlp.act (GELU)", f"  {INPUTS[True]}"]
    assert "by itself, in float64, another function than the original: " in said[2]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", REWRITES)
def test_a_correct_rewrite_is_accepted_in_bfloat16(name: str) -> None:
    report = Pair.of(REWRITES[name], torch.bfloat16).compared()
    assert report.agrees, "\n".join(report.explain())


def test_a_rewrite_that_rounds_more_often_is_noted() -> None:
    report = Pair.of(REWRITES["convolutions by products"], torch.bfloat16).compared()
    assert [each.label for each in report.layers if each.note == ROUNDS] == ["c1"]


class Remembers(nn.Module):
    """Adds what it got before to what it gets, so that no call can be repeated by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        found, self.before = x + self.before.to(x.dtype), x.detach()
        return found


class Twice(nn.Module):
    """Calls one module twice, after it has forgotten what it had at first."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.part = Remembers()
        self.part.before.fill_(first)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        self.part.before = torch.zeros(())
        return self.part(self.part(x) * 0.3)


@pytest.mark.parametrize("first", [(0.0, 1.0), (1.0, 0.0)])
def test_a_module_that_remembers_is_not_compared_by_itself(first: tuple[float, float]) -> None:
    torch.manual_seed(0)
    report = models(*map(Twice, first), torch.randn(4, 64).bfloat16())
    assert report.agrees, "\n".join(report.explain())
