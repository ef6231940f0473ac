"""``precision.whole``: outputs and gradients of a module in one call, whatever it takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import layers, whole


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
    from pytest_ascend.run.reference import cpu_reference

    expected = cpu_reference(Experts(), torch.randn(8, 16))
    assert expected.source.notes == [
        "the CPU has no kernel of _grouped_mm for this: that operator alone is computed from its definition"
    ]
