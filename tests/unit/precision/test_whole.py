"""``precision.whole``: outputs and gradients of a module in one call, whatever it takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import compare, layers, whole
from pytest_ascend.precision.kernel_fallbacks import autocast_elsewhere
from pytest_ascend.precision.reference import plain
from pytest_ascend.precision.whole import ModuleResults
from pytest_ascend.run.reference import cpu_reference


class Cache:
    """Filled by the layers that it is handed to, as a key-value cache is."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []


@dataclass
class Output:
    logits: torch.Tensor
    cache: Cache
    parts: tuple[dict[str, torch.Tensor], ...] = ()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        cache.kept.append(self.up(x))
        return torch.tanh(cache.kept[-1] + sum(each.mean() for each in cache.kept))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([Layer(), Layer()]), nn.Linear(16, 5)

    def forward(self, batch: dict[str, torch.Tensor], *, scale: float = 1.0) -> Output:
        cache, x = Cache(), batch["x"]
        for layer in self.layers:
            x = layer(x, cache=cache)
        return Output(self.head(x) * scale, cache, ({"x": x},))


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"x": torch.randn(4, 16)}


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_every_output_and_gradient_is_judged(batch: dict[str, torch.Tensor], autocast: torch.dtype | None) -> None:
    verdict = whole(Model(), batch, scale=2.0, autocast=autocast)
    assert verdict.agrees
    paths = {leaf.path for leaf in verdict.leaves}
    assert {
        "Model.output.logits",
        "Model.output.cache.kept[1]",
        "Model.output.parts[0]['x']",
        "Model.grad_input['0']",
        "Model.grad['layers.1.up.bias']",
    } <= paths


def test_layers_that_write_into_a_cache_are_judged_as_they_were_called(batch: dict[str, torch.Tensor]) -> None:
    report = layers(Model(), batch)
    assert report.agrees
    assert [layer.label for layer in report.layers] == [
        "layers.0.up",
        "layers.0",
        "layers.1.up",
        "layers.1",
        "head",
        "(model)",
    ]


def test_dropout_modules_are_switched_off_and_named_and_others_refused() -> None:
    class Functional(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.5, self.training)

    x = torch.randn(3, 8)
    verdict = whole(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), x)
    assert verdict.headline == "agrees; dropout was switched off in 1"
    with pytest.raises(UsageError, match=r"draws random numbers \(bernoulli_\) in 1, "):
        whole(nn.Sequential(nn.Linear(8, 8), Functional()), x)
    assert whole(nn.Sequential(nn.Linear(8, 8), Functional()).eval(), x).agrees


def test_random_numbers_without_effect_are_no_reason_to_refuse_a_model() -> None:
    class Noisy(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.up, self.scale = nn.Linear(8, 8), scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.up(x)
            return y + self.scale * torch.randn_like(y)

    assert whole(Noisy(0.0), torch.randn(4, 8)).agrees
    with pytest.raises(UsageError, match="draws random numbers"):
        whole(Noisy(1.0), torch.randn(4, 8))


def test_lazy_modules_have_the_same_weights_everywhere() -> None:
    model = nn.Sequential(nn.LazyLinear(7), nn.GELU(), nn.LazyLinear(3))
    assert whole(model, torch.randn(4, 6)).agrees
    assert model[0].weight.shape == (7, 6)


def test_an_operator_without_a_float64_kernel_is_computed_another_way() -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no grouped product")

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 16, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            offsets = torch.tensor([3, 8], dtype=torch.int32, device=x.device)
            return torch._grouped_mm(x, self.weight, offs=offsets)

    verdict = whole(Experts(), torch.randn(8, 16))
    assert verdict.agrees
    expected = cpu_reference(Experts(), torch.randn(8, 16))
    assert expected.source.notes == [
        "the CPU has no kernel of _grouped_mm for this: that operator alone is computed from its definition"
    ]


class Classifier(nn.Module):
    """Computes its own loss, as models of libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 30)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_a_loss_that_an_npu_computes_in_bfloat16_under_autocast_agrees() -> None:
    torch.manual_seed(0)
    model, x, labels = Classifier(), torch.randn(40, 16) * 4, torch.arange(40) % 30
    expected = cpu_reference(model, x, labels, autocast=torch.bfloat16)
    with autocast_elsewhere(), torch.autocast("cpu", dtype=torch.bfloat16):  # as torch_npu does
        actual = model(x, labels)
    assert compare(actual, expected).agrees
    assert not compare({**actual, "loss": actual["loss"] * 1.05}, expected).agrees


def test_a_function_that_only_an_npu_has_is_computed_from_its_definition() -> None:
    """Libraries choose it wherever torch_npu can be imported, also for what runs on the CPU."""
    library = torch.library.Library("judged_functions", "DEF")
    library.define("npu_geglu(Tensor x, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)")
    try:
        torch.manual_seed(0)
        x = torch.randn(6, 20)
        expected = cpu_reference(lambda x: torch.ops.judged_functions.npu_geglu(x, dim=-1, approximate=0)[0], x)
        left, right = x.chunk(2, -1)
        assert compare(left * nn.functional.gelu(right), expected).agrees
        assert not compare(right * nn.functional.gelu(left), expected).agrees
        assert "npu_geglu" in expected.source.notes[0]
    finally:
        library._destroy()


def test_which_of_nearly_equal_values_is_largest_may_be_what_a_reference_run_says() -> None:
    torch.manual_seed(0)
    scores, weight = torch.randn(64, 256), torch.randn(256, 8)
    weight[:, 1] = weight[:, 0]  # equal but for roundings

    def chosen(scores: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        shares = (scores @ weight).softmax(-1)
        return (shares + torch.arange(8).to(shares) * torch.finfo(scores.dtype).eps / 8).topk(2).indices

    expected = cpu_reference(chosen, scores.bfloat16(), weight.bfloat16())
    actual = chosen(scores.bfloat16(), weight.bfloat16())
    assert not torch.equal(actual, plain(expected))
    assert compare(actual, expected).agrees
    assert not compare((actual + 3) % 8, expected).agrees


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (torch.abs, [-1.0] * 8),
        (lambda x: x.clamp(0, 9), [0.0] * 8),
        (lambda x: torch.maximum(x, -x), [-1.0] * 8),
        (lambda x: (x + 3).amax(1), [0.0, 1.0, *[0.0] * 6]),
    ],
    ids=["abs", "clamp", "maximum", "amax"],
)
def test_a_gradient_through_a_comparison_may_jump_there_and_nowhere_else(function: Any, other: list[float]) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = function(x * self.weight)
            return made.sum()

    torch.manual_seed(0)
    x = torch.randn(64, 8)
    x[0] = torch.tensor([1e-7, *[9e-8] * 7])
    both = ModuleResults.of(Layer(), (x,), {}, torch.device("cpu"), None)
    assert all(each.agrees for each in both.judged())
    both.actual["grad_input"]["0"][0] = torch.tensor(other)
    assert all(each.agrees for each in both.judged()), "the other side of a jump"
    both.actual["grad"]["weight"][3] *= 1.001
    assert [each.agrees for each in both.judged()] == [True, True, False]


def test_a_wrong_layer_is_judged_beside_as_many_reference_runs_as_a_module() -> None:
    class Sometimes(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            type(self).calls += 1
            return torch.tanh(x) * (1.001 if type(self).calls == 1 else 1)

    report = layers(nn.Sequential(nn.Linear(8, 8), Sometimes()), torch.randn(40, 8), backward=False)
    assert report.first is not None
    assert "compared with 8 CPU results in float32" in report.first.forward.message


@pytest.mark.parametrize("size", [0.0, 0.004])
def test_in_16_bits_an_output_that_agrees_narrowly_is_judged_layer_by_layer(size: float) -> None:
    noise = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))

    class Coarse(nn.Linear):
        wrong = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return (found.float() * (1 + size * noise)).to(found.dtype) if self.wrong else found

    class Net(nn.Sequential):
        def to(self, *args: Any, **kwargs: Any) -> Any:  # what the device computes
            self[0].wrong = True
            return super().to(*args, **kwargs)

    torch.manual_seed(0)
    model = Net(Coarse(64, 64), *(nn.Linear(64, 64) for _ in range(3))).bfloat16()
    x = torch.randn(32, 64).bfloat16()
    assert whole(model, x, locate=False).agrees
    verdict = whole(model, x)
    assert verdict.agrees is not bool(size)
    assert ("first wrong layer: 0 (Coarse)" in verdict.headline) is bool(size)


def test_a_model_that_fails_on_the_cpu_is_not_the_devices_fault() -> None:
    class Kept(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            return y.square() + y.zero_()

    class Lowest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, torch.finfo(torch.float32).min)

    for judge in (whole, layers):
        with pytest.raises(UsageError, match="Lowest fails on the CPU: RuntimeError: value cannot be converted"):
            judge(Lowest(), torch.ones(4, dtype=torch.bfloat16))
        with pytest.raises(UsageError, match="Kept fails on the CPU: RuntimeError: one of the variables needed"):
            judge(Kept(), torch.randn(3, 4, requires_grad=True))
