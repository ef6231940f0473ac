"""Variants of the models, judged by the CPU: what is wrong in one layer only is found there, what is correct is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_ascend.golden.commands import reproducible
from pytest_ascend.parity.ensemble import Observed, Reference, channels_last, move
from pytest_ascend.precision import compare
from pytest_ascend.precision.kernel_fallbacks import products_in_float32, without_onednn
from suites.models import passing
from suites.models.architectures import Sizes, VisionTransformer
from suites.models.computation import MODELS, weights
from suites.models.goldens import CPU, unfused_attention
from suites.models.passing import copied, one_pass, right
from suites.models.test_models import FIRST, agreement, lost
from suites.models.variants import ASPECTS, Variant

RESNET = Variant("resnet50", "float32", 1, training=True, channels_last=False)
STILL = Variant("resnet50", "float32", 1, training=False, channels_last=False)
VIT = Variant("vit_b_16", "autocast-bfloat16", 1, training=True, channels_last=False)

Change = Callable[[nn.Module], object]


@pytest.fixture(scope="module", autouse=True)
def a_smaller_vit() -> Iterator[None]:
    """Use a ViT with a twentieth of the products: on processors without short formats autocast takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        small = partial(VisionTransformer, Sizes(width=192, mlp_width=768, heads=3, layers=8))
        patch.setitem(MODELS, "vit_b_16", MODELS["vit_b_16"]._replace(make=small))  # type: ignore[arg-type]
        for name in ("exact", "weights_of"):
            patch.setattr(passing, name, cache(getattr(passing, name).__wrapped__))
        weights.cache_clear()
        yield
        weights.cache_clear()


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    with reproducible():
        yield


@cache
def expected(variant: Variant) -> Reference:
    return right.__wrapped__(variant)  # type: ignore[attr-defined,no-any-return]


def seen(variant: Variant, change: Change) -> Observed:
    model = copied(variant)
    change(model)
    with products_in_float32():
        return one_pass(variant, model, CPU)


def wrong(variant: Variant, change: Change) -> dict[str, str]:
    """Return what disagrees of a pass on the CPU that was changed: aspect, and where it began."""
    actual, reference, found = seen(variant, change), expected(variant), {}
    for aspect in ASPECTS:
        branching = aspect == "gradients" and variant.model == "resnet50"
        reference_runs = reference.samples(aspect)
        verdict = compare(
            actual[aspect], reference.expected(aspect), reference_runs=reference_runs, name=aspect, branching=branching
        )
        if not verdict.agrees:
            found[aspect] = FIRST[aspect](verdict) if aspect in FIRST else verdict.headline
    return found


def on(name: str, change: Callable[[Any], object]) -> Change:
    return lambda model: change(model.get_submodule(name))


def given(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return on(name, lambda module: module.register_forward_pre_hook(lambda _, values: (change(values[0]),)))


def gives(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    """Let a module give something else, before anybody looks."""
    return on(name, lambda module: module.register_forward_hook(lambda _, __, output: change(output), prepend=True))


def on_gradient(parameter: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda model: model.get_parameter(parameter).register_hook(change)


def as_if_dense(x: Tensor) -> Tensor:
    """Read memory that has channels innermost as if it had not."""
    return x.permute(0, 2, 3, 1).reshape(x.shape)


def softmax_in_half(module: Any) -> None:
    """Compute the attention by hand, and add up what softmax divides by in bfloat16."""

    def forward(x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        projected = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = projected.reshape(batch, tokens, 3, module.heads, -1).permute(2, 0, 3, 1, 4)
        shares = (q @ k.transpose(-1, -2) / 8).bfloat16().exp()
        total = torch.zeros_like(shares[..., :1])
        for each in shares.split(1, -1):
            total = total + each
        shares = shares / total
        out: Tensor = module.out_proj((shares @ v).transpose(1, 2).reshape(batch, tokens, width))
        return out

    module.forward = forward


def batch_variance(module: Any) -> None:
    """Normalise by the batch where running statistics are due."""
    module.forward = lambda x: F.batch_norm(x, None, None, module.weight, module.bias, training=True, eps=module.eps)


def unbiased(module: Any) -> None:
    """Normalise by the variance that goes into running statistics."""
    count = 14 * 14
    module.forward = lambda x: (
        F.batch_norm(x, None, None, module.weight, module.bias, training=True, eps=module.eps)
        * ((count - 1) / count) ** 0.5
        + module.bias[:, None, None] * (1 - ((count - 1) / count) ** 0.5)
    )


FAULTS = [
    pytest.param(RESNET, given("layer2.1.conv2", as_if_dense), "layers", "layer2.1.conv2", id="strides ignored"),
    pytest.param(RESNET, on("layer3.2.bn2", unbiased), "layers", "layer3.2.bn2", id="unbiased variance"),
    pytest.param(
        RESNET,
        given("layer3.4.conv1", lambda x: x.bfloat16().float()),
        "layers",
        "layer3.4.conv1",
        id="one convolution in bfloat16",
    ),
    pytest.param(
        STILL, on("layer2.0.bn3", batch_variance), "layers", "layer2.0.bn3", id="eval that normalises as train"
    ),
    pytest.param(
        RESNET, gives("maxpool", lambda y: y.clamp(max=2.5)), "layers", "maxpool", id="a pooling that saturates"
    ),
    pytest.param(
        RESNET, on_gradient("fc.bias", lambda g: g * 1.1), "gradients", "fc.bias", id="a bias gradient 10 % off"
    ),
    pytest.param(
        RESNET,
        on_gradient("layer4.1.conv2.weight", lambda g: g.flip(0)),
        "gradients",
        "layer4.1.conv2.weight",
        id="a gradient of other channels",
    ),
    pytest.param(
        VIT,
        on("encoder.layers.encoder_layer_3.self_attention", softmax_in_half),
        "layers",
        # What a module computes itself shows first in the part that it hands it to.
        "encoder.layers.encoder_layer_3.self_attention.out_proj",
        id="autocast puts softmax in half",
    ),
    pytest.param(
        VIT,
        gives("encoder.layers.encoder_layer_5.ln_1", lambda y: y.bfloat16() * 1.01),
        "layers",
        "encoder.layers.encoder_layer_5.ln_1",
        id="autocast puts layer norm in half",
    ),
    pytest.param(
        VIT,
        on("encoder.layers.encoder_layer_7.mlp.1", lambda gelu: setattr(gelu, "forward", F.silu)),
        "layers",
        "encoder.layers.encoder_layer_7.mlp.1",
        id="another activation",
    ),
    pytest.param(
        VIT,
        on_gradient("encoder.layers.encoder_layer_2.ln_2.bias", lambda g: g * 1.2),
        "gradients",
        "encoder.layers.encoder_layer_2.ln_2.bias",
        id="a bias gradient of a layer norm 20 % off",
    ),
]


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize(("variant", "fault", "aspect", "first"), FAULTS)
def test_a_fault_of_one_layer_is_found_there(variant: Variant, fault: Change, aspect: str, first: str) -> None:
    found = wrong(variant, fault)
    assert found.get(aspect, "nothing").endswith(f": {first}"), found
    assert aspect == "layers" or "layers" not in found


def within(context: Callable[[], Any]) -> Change:
    def change(model: nn.Module) -> None:
        inner = model.forward

        def forward(x: Tensor) -> Any:
            with context():
                return inner(x)

        model.forward = forward  # type: ignore[method-assign]

    return change


def summed_backwards(module: Any) -> None:
    module.forward = lambda x: F.linear(x.flip(-1), module.weight.flip(-1), module.bias)


REFERENCE_RUN = [
    pytest.param(STILL, channels_last, id="channels last"),
    pytest.param(RESNET, within(without_onednn), id="other kernels"),
    pytest.param(RESNET, lambda model: move(model, "another"), id="moved by an ulp"),
    pytest.param(STILL, on("fc", summed_backwards), id="another order of a sum"),
    pytest.param(VIT, within(unfused_attention), id="unfused attention"),
    pytest.param(
        VIT, on("encoder.layers.encoder_layer_4.mlp.3", summed_backwards), id="another order of a sum in half"
    ),
]


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize(("variant", "variation"), REFERENCE_RUN)
def test_a_correct_variation_is_accused_of_nothing(variant: Variant, variation: Change) -> None:
    assert wrong(variant, variation) == {}
    exact = expected(variant).expected("forward")["logits"]
    actual = seen(variant, variation)
    reference_runs = [each["logits"] for each in expected(variant).samples("forward")]
    classes = actual["top five"]["classes"]
    assert not lost(classes, exact, reference_runs, actual["forward"]["logits"].dtype).any()
    assert agreement(classes, exact) >= 0.6
