"""Wrong fused forms, input pipelines and rewritten models are seen, and right ones are accused of nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MethodType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, get_worker_info

from pytest_ascend.precision import compare, models
from suites.adaptation.pipeline import (
    BATCH,
    SAMPLES,
    SEED,
    WORKERS,
    Augmented,
    bits,
    collected,
    epochs,
    expected,
)
from suites.adaptation.rewritten import ORIGINALS, SLIPS, RewrittenViT, names
from suites.fusion import FORMS, Form, numbers
from suites.fusion.test_fusion import complaint_about_loss, precision_loss
from suites.programs.parts import Of

CPU = torch.device("cpu")


# --- fused forms ---


def judged(form: Form) -> tuple[bool, bool]:
    """Say whether the judge agrees with a form on the CPU, and whether it keeps the limit on its loss."""
    fused, plain, expected, runs = numbers(form, CPU)
    verdict = compare(fused, expected, reference_runs=runs, name=form.pattern)
    return verdict.agrees, not complaint_about_loss(precision_loss(fused, plain))


def folded(layers: nn.Module, *, eps: float = 1e-5, mean: bool = True, relu: bool = False) -> nn.Module:
    convolution, norm = copy.deepcopy(layers[0]), layers[1]
    factor = norm.weight / (norm.running_var + eps).sqrt()
    convolution.weight = nn.Parameter(convolution.weight * factor[:, None, None, None])
    convolution.bias = nn.Parameter(norm.bias - (norm.running_mean * factor if mean else 0))
    return nn.Sequential(convolution, *([nn.ReLU()] if relu else []))


def by(compute: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[nn.Module], nn.Module]:
    return lambda layers: Of(compute, layers)


def attention(x: Tensor, **settings: object) -> Tensor:
    return F.scaled_dot_product_attention(*x.unbind(1), **settings)


WRONG: dict[str, Form] = {
    "running mean forgotten": Form("conv-bn", lambda layers: folded(layers, mean=False)),
    "another epsilon": Form("conv-bn", lambda layers: folded(layers, eps=1e-3)),
    "relu forgotten": Form("conv-bn-relu", folded),
    "bias forgotten": Form("linear-relu", by(lambda layers, x: F.linear(x, layers[0].weight).relu())),
    "leaky relu": Form("linear-relu", by(lambda layers, x: F.leaky_relu(layers[0](x)))),
    "product in half": Form(
        "linear-relu",
        by(lambda layers, x: F.linear(x.bfloat16(), layers[0].weight.bfloat16(), layers[0].bias.bfloat16()).relu()),
    ),
    "GELU by tanh": Form("layer-norm-gelu", by(lambda layers, x: F.gelu(layers[0](x), approximate="tanh"))),
    "no weight": Form("layer-norm-gelu", by(lambda _, x: F.gelu(F.layer_norm(x, [x.shape[-1]])))),
    "no scale": Form("attention", by(lambda _, x: attention(x, scale=1.0))),
    "causal": Form("attention", by(lambda _, x: attention(x, is_causal=True))),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fused_form_is_seen(name: str) -> None:
    agrees, keeps_the_limit = judged(WRONG[name])
    assert not agrees
    assert not keeps_the_limit


RIGHT = {name: form for name, form in FORMS.items() if form.everywhere} | {
    "folded by hand": Form("conv-bn-relu", lambda layers: folded(layers, relu=True)),
    "channels last": Form("conv-bn", lambda layers: copy.deepcopy(layers).to(memory_format=torch.channels_last)),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_fused_form_is_accused_of_nothing(name: str) -> None:
    assert judged(RIGHT[name]) == (True, True)


# --- input pipelines ---


class SeededByWorker(Augmented):
    """Draws from what torch gave its worker."""

    def generator(self, index: int) -> torch.Generator:
        worker = get_worker_info()
        return torch.Generator().manual_seed(worker.id if worker else 0)


class SeededByCalls(Augmented):
    """Draws from one generator, sample after sample: right with no worker alone."""

    def __init__(self) -> None:
        self.one = torch.Generator().manual_seed(SEED)

    def generator(self, index: int) -> torch.Generator:
        return self.one


FORKED = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)


def agrees(actual: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return compare(bits(actual), bits(right)).agrees


@FORKED
@pytest.mark.parametrize("name", WORKERS)
def test_a_pipeline_that_is_seeded_by_sample_is_right_with_any_workers(name: str) -> None:
    data, workers = Augmented(), {**WORKERS[name], "pin_memory": False}  # to pin memory takes a device
    assert agrees(epochs(data, workers, CPU), expected(data.__getitem__))


@FORKED
@pytest.mark.parametrize("dataset", [SeededByWorker, SeededByCalls])
def test_a_pipeline_that_depends_on_the_worker_is_seen(dataset: type[Augmented]) -> None:
    without = expected(dataset().__getitem__)
    assert agrees(epochs(dataset(), WORKERS["workers-0"], CPU), without)
    assert not agrees(epochs(dataset(), WORKERS["workers-2"], CPU), without)


@FORKED
def test_an_order_that_depends_on_whether_workers_live_on_is_seen() -> None:
    def read(*, persistent: bool) -> dict[str, Tensor]:
        shared = torch.Generator().manual_seed(SEED)
        sampler = RandomSampler(range(SAMPLES), generator=shared)
        loader = DataLoader(
            Augmented(),
            BATCH,
            sampler=sampler,
            generator=shared,
            num_workers=2,
            persistent_workers=persistent,
            multiprocessing_context="fork",
        )
        return collected(loader, CPU)

    assert not agrees(read(persistent=True), read(persistent=False))


# --- rewritten models ---

MAKE, INPUT = ORIGINALS["small-vit"]


def first_wrong(change: Callable[[nn.Module], object]) -> str:
    """Return the label of the module in which a changed model begins to be another; "" where it is the same."""
    original = MAKE().eval()
    model = RewrittenViT(original).eval()
    change(model)
    torch.manual_seed(0)
    report = models(model, original, INPUT(), names=names(original))
    return report.first.label if report.first else ""


def exchange_keys_and_values(model: nn.Module) -> None:
    attend = model.get_submodule("blocks.0.attend")
    attend.k, attend.v = attend.v, attend.k


def move_a_weight(model: nn.Module) -> None:
    with torch.no_grad():
        model.get_submodule("blocks.1.up").weight[3, 5] += 1e-4


def heads_interleaved(model: nn.Module) -> None:
    attend = model.get_submodule("blocks.0.attend")
    for each in (attend.q, attend.k, attend.v):
        each.weight = nn.Parameter(each.weight.unflatten(0, (-1, attend.heads)).transpose(0, 1).flatten(0, 1))


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("change", "where"),
    [
        (exchange_keys_and_values, "blocks.0.attend = encoder.layers.encoder_layer_0.self_attention"),
        (move_a_weight, "blocks.1.up = encoder.layers.encoder_layer_1.mlp.0"),
        (heads_interleaved, "blocks.0.attend = encoder.layers.encoder_layer_0.self_attention"),
        *(
            (lambda model, change=change: change(model.blocks[-1]), f"blocks.1.{where}".rstrip(".") + " = ")
            for change, where in SLIPS.values()
        ),
    ],
)
def test_a_slip_is_seen_where_it_is(change: Callable[[nn.Module], object], where: str) -> None:
    assert first_wrong(change).startswith(where)


def in_one_product(model: nn.Module) -> None:
    """Put the projections together again, in another order."""
    attend = model.get_submodule("blocks.0.attend")
    weight, bias = (
        torch.cat([getattr(each, key) for each in (attend.v, attend.k, attend.q)]) for key in ("weight", "bias")
    )

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        own = weight.to(x.dtype), bias.to(x.dtype)
        v, k, q = F.linear(x, *own).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).flatten(2))

    attend.forward = MethodType(forward, attend)


@pytest.mark.parametrize("change", [lambda _: None, in_one_product, lambda model: model.train()])
def test_what_is_the_same_is_taken_for_it(change: Callable[[nn.Module], object]) -> None:
    assert first_wrong(change) == ""
