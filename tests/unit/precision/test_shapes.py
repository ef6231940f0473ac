"""Results whose shape depends on rounded numbers: float64 may have another than the CPU in the device's dtype."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_ascend.precision import compare, layers
from pytest_ascend.precision.capture import run
from pytest_ascend.precision.layers import ModuleCopies
from pytest_ascend.precision.reference import BY_RUNS, Source, in_shapes_of
from pytest_ascend.precision.whole import models, outputs_and_gradients, whole
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.reference import cpu_reference

#: The sum of its last two is 1 in float32, and more in float64.
X = torch.cat([torch.linspace(-2, 2, 30), torch.tensor([1.0, 2.0**-26])])


class Points(nn.Module):
    """Finds the points above a level, which is another in float64, as of an image."""

    def __init__(self, level: float = 0.0, factor: float = 1.0) -> None:
        super().__init__()
        self.before, self.after, self.level, self.factor = nn.Linear(32, 32), nn.Linear(1, 8), level, factor

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.before(x).tanh()
        level = -2.0 if x[-2] + x[-1] > 1 else self.level
        points = self.after(hidden[hidden > level][:, None]) * self.factor
        return {"hidden": hidden, "points": points, "mean": points.mean(0)}


def drawn(*, level: float = 0.0, factor: float = 1.0) -> Points:
    torch.manual_seed(0)
    return Points(level, factor)


def results(model: nn.Module) -> dict[str, Any]:
    return outputs_and_gradients(copy.deepcopy(model), (X,), {}, contextlib.nullcontext())


def judged(actual: dict[str, Any], expected: dict[str, Any]) -> Verdict:
    return compare(actual, in_shapes_of(actual, expected))


@pytest.fixture
def expected() -> dict[str, Any]:
    return Source(drawn(), (X,), {}, call=outputs_and_gradients).exact()


def test_a_right_device_agrees_where_float64_has_another_shape(expected):
    model = drawn()
    assert len(model(X)["points"]) < len(cpu_reference(model, X)["points"]) == 32
    assert judged(results(model), expected).agrees
    assert compare(model(X), cpu_reference(model, X)).agrees
    assert whole(model, X).agrees
    assert layers(model, X).agrees
    assert models(drawn(), model, X).agrees


def test_a_shape_that_no_run_of_the_cpu_has_is_wrong(expected):
    model, other = drawn(), drawn(level=0.3)
    assert len({len(each["points"]) for each in (model(X), other(X), expected["output"])}) == 3
    for verdict in (judged(results(other), expected), compare(other(X), cpu_reference(model, X))):
        assert not verdict.agrees
        assert "shape: expected (32, 8), got" in verdict.message
    report = models(other, model, X)
    assert report.first is not None
    assert report.first.label == "after"


@pytest.mark.parametrize("part", ["hidden", "points", "mean", "grad", "grad_input"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_judged_by_runs_of_the_shape_in_every_part(part, dtype):
    model, x = drawn().to(dtype), X.to(dtype)
    expected = Source(model, (x,), {}, call=outputs_and_gradients).exact()
    actual = outputs_and_gradients(copy.deepcopy(model), (x,), {}, contextlib.nullcontext())
    assert judged(actual, expected).agrees
    gradients = {"grad": actual["grad"]["before.weight"], "grad_input": actual["grad_input"]["0"]}
    tensor = (actual["output"] | gradients)[part]
    tensor.view(-1)[tensor.abs().argmax()] *= 1 + 24 * torch.finfo(dtype).eps
    verdict = judged(actual, expected)
    assert [each.agrees for each in verdict.leaves].count(False) == 1
    assert verdict.message.count(BY_RUNS) == 1


def test_a_wrong_value_of_a_layer_is_seen():
    model = drawn()
    calls = run(copy.deepcopy(model), (X,), {}, None, True)[1]
    copies, call = ModuleCopies(dict(model.named_modules()), None, None), calls[-1]
    assert copies.judge(call).agrees
    wrong = {**call.output, "points": call.output["points"] * (1 + 1e-5)}
    assert not copies.judge(replace(call, output=wrong)).agrees


def test_a_rewritten_model_of_that_shape_with_other_values_is_seen():
    report = models(drawn(factor=1.00001), drawn(), X)
    assert report.first is not None
    assert report.first.label == "(model)"


def test_runs_of_another_shape_are_kept_for_what_was_computed_before_it():
    lengths = iter((9, 9, 9, 9, 7, *[9] * 20))

    def parts(x: Tensor) -> tuple[Tensor, ...]:
        return x + 1, (2 * x)[: next(lengths)], 3 * x

    expected = Source(parts, (torch.randn(9),), {}, is_ordered=True).exact()
    assert [len(each.reference_runs(torch.float32, 8)) for each in expected] == [8, 7, 7]


def test_what_is_computed_from_a_result_keeps_its_shape():
    model = drawn()
    expected = {name: 2 * each for name, each in cpu_reference(model, X).items()}
    assert not compare(model(X), expected).agrees
