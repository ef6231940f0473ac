"""Trainings are judged by how far reference runs drift: what is wrong is seen, and what is only different is not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from pytest_ascend.parity.ensemble import Observed, Reference, first_wrong, move, reference, trace
from pytest_ascend.parity.training import KINDS, Recipe, train
from pytest_ascend.precision import compare
from pytest_ascend.system.dispatching import one_thread
from suites.models.architectures import SelfAttention
from suites.training.recipes import ADAM_SETTINGS, SGD_SETTINGS, make, recipe

OF_MODEL = {"small-resnet": "sgd-steplr", "small-vit": "adamw"}
STEPS = 8

Change = Callable[[nn.Module, Recipe], tuple[nn.Module, Recipe]]
Train = Callable[[nn.Module, Recipe], Observed]


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@cache
def right(model: str, by: Train) -> Reference:
    usual = recipe(OF_MODEL[model], steps=STEPS)
    return reference(make(model), lambda each: by(each, usual), lambda each: by(each, usual), orders=by is trace)


def changed(model: str, change: Change, by: Train) -> Observed:
    """Train on the CPU what was changed."""
    return by(*change(make(model), recipe(OF_MODEL[model], steps=STEPS)))


def wrong(model: str, change: Change) -> dict[str, str]:
    """Return what disagrees of a training on the CPU that was changed, by kind."""
    actual, expected = changed(model, change, train), right(model, train)
    found = {}
    for kind in KINDS:
        verdict = compare(
            actual[kind],
            expected.expected(kind),
            reference_runs=expected.samples(kind),
            name=kind,
            branching=model == "small-resnet" and kind in {"weights", "state"},
        )
        if not verdict.agrees:
            found[kind] = verdict.headline
    return found


def first_of(model: str, change: Change) -> str:
    """Return the first wrong step of a training that was changed, as messages say it."""
    return first_wrong(changed(model, change, trace), right(model, trace), branching=model == "small-resnet")


def with_optimizer(make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]) -> Change:
    return lambda model, plan: (model, replace(plan, optimizer=make_optimizer))


def with_schedule(schedule: Callable[[torch.optim.Optimizer], StepLR]) -> Change:
    return lambda model, plan: (model, replace(plan, schedule=schedule))


def on(name: str, change: Callable[[nn.Module], Any]) -> Change:
    def fault(model: nn.Module, plan: Recipe) -> tuple[nn.Module, Recipe]:
        change(model.get_submodule(name))
        return model, plan

    return fault


class EpsInTheRoot(torch.optim.AdamW):
    """Takes the root of the second moment and epsilon together."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            eps = group["eps"]
            for each in group["params"]:
                state = self.state[each]
                state.setdefault("step", torch.tensor(0.0))
                state["step"] += 1
                mean = state.setdefault("exp_avg", torch.zeros_like(each))
                square = state.setdefault("exp_avg_sq", torch.zeros_like(each))
                first, second = group["betas"]
                with torch.no_grad():
                    each.mul_(1 - group["lr"] * group["weight_decay"])
                    mean.lerp_(each.grad, 1 - first)
                    square.mul_(second).addcmul_(each.grad, each.grad, value=1 - second)
                    count = float(state["step"])
                    root = (square / (1 - second**count) + eps**2).sqrt()
                    each.sub_(group["lr"] / (1 - first**count) * mean / root)


class DecayedTwice(torch.optim.AdamW):
    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for each in group["params"]:
                    each.mul_(1 - group["lr"] * group["weight_decay"])
        super().step()


class Forgetful(torch.optim.AdamW):
    """Starts one parameter's second moment anew at the fourth step."""

    def step(self, closure: Any = None) -> None:
        state = self.state[self.param_groups[0]["params"][0]]
        if state and int(state["step"]) == 3:
            state["exp_avg_sq"].zero_()
        super().step()


def momentum(model: nn.Module) -> None:
    model.momentum = 0.2


def lose_the_bias_gradient(module: nn.Module) -> None:
    module.bias.register_hook(lambda gradient: gradient * 1.001)


def half_softmax(module: nn.Module) -> None:
    assert isinstance(module, SelfAttention)

    def forward(x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        projected = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = projected.reshape(batch, tokens, 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).half().softmax(-1).to(q.dtype)
        return module.out_proj((scores @ v).transpose(1, 2).reshape(batch, tokens, -1))

    module.forward = forward


def exact_gelu(module: nn.Module) -> None:
    assert module.approximate == "tanh"
    module.approximate = "none"


def as_channels_last_read_wrongly(module: nn.Module) -> None:
    def shuffle(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = given[0]
        return (x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).reshape(x.shape),)

    module.register_forward_pre_hook(lambda _, given: shuffle(given))


def eps_of_norm(module: nn.Module) -> None:
    module.eps = 1e-5


def scaled_twice(module: nn.Module) -> None:
    module.weight.register_hook(lambda gradient: gradient * 2)


#: Model, fault, the kind of results that disagrees, whose message names this, and the first wrong of all.
FAULTS = [
    pytest.param(
        "small-resnet",
        on("block1.bn1", momentum),
        "statistics",
        "block1.bn1.running",
        "step 1, running statistics of block1.bn1.running_mean",
        id="bn momentum",
    ),
    pytest.param(
        "small-vit",
        on("heads.head", lose_the_bias_gradient),
        "state",
        "heads.head.bias",
        "step 1, gradient of heads.head.bias",
        id="bias gradient 0.1 % off",
    ),
    pytest.param(
        "small-resnet",
        on("block2.conv1", as_channels_last_read_wrongly),
        "curve",
        "",
        "step 1, loss",
        id="strides ignored",
    ),
    pytest.param(
        "small-resnet",
        on("block2.conv2", scaled_twice),
        "weights",
        "",
        "step 1, gradient of block2.conv2.weight",
        id="a gradient accumulated twice",
    ),
    pytest.param(
        "small-resnet",
        with_optimizer(lambda p: torch.optim.SGD(p, **{**SGD_SETTINGS, "nesterov": True})),
        "curve",
        "",
        "step 1, weight of conv.weight (23 of 23 are)",
        id="another momentum rule",
    ),
    pytest.param(
        "small-vit",
        on("encoder.layers.encoder_layer_0.self_attention", half_softmax),
        "curve",
        "",
        "step 1, loss",
        id="softmax in half",
    ),
    pytest.param(
        "small-vit",
        on("encoder.layers.encoder_layer_1.mlp.1", exact_gelu),
        "curve",
        "",
        "step 1, loss",
        id="exact GELU",
    ),
    pytest.param(
        "small-vit",
        on("encoder.layers.encoder_layer_1.ln_2", eps_of_norm),
        "state",
        "",
        "step 1, gradient of",
        id="epsilon of a layer norm",
    ),
    pytest.param(
        "small-vit",
        with_optimizer(lambda p: EpsInTheRoot(p, **ADAM_SETTINGS)),
        "curve",
        "",
        "step 1, weight of class_token (32 of 32 are)",
        id="epsilon in the root",
    ),
    pytest.param(
        "small-vit",
        with_optimizer(lambda p: DecayedTwice(p, **ADAM_SETTINGS)),
        "weights",
        "",
        "step 1, weight of class_token (32 of 32 are)",
        id="decayed twice",
    ),
    pytest.param(
        "small-resnet",
        with_schedule(lambda optimizer: StepLR(optimizer, step_size=4, gamma=0.25)),
        "weights",
        "",
        "step 5, weight of conv.weight (",
        id="a rate that falls too early",
    ),
    pytest.param(
        "small-vit",
        with_optimizer(lambda p: Forgetful(p, **ADAM_SETTINGS)),
        "state",
        "",
        "step 4, optimizer state of class_token.exp_avg_sq",
        id="a second moment lost at the fourth step",
    ),
]


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize(("model", "fault", "kind", "where", "first"), FAULTS)
def test_a_fault_of_a_training_is_seen_and_its_first_step_named(
    model: str, fault: Change, kind: str, where: str, first: str
) -> None:
    found = wrong(model, fault)
    assert kind in found, found
    assert where in found[kind]
    assert f"first wrong at {first}" in first_of(model, fault)


def unfused(module: nn.Module) -> None:
    def forward(x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        projected = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = projected.reshape(batch, tokens, 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return module.out_proj((scores @ v).transpose(1, 2).reshape(batch, tokens, -1))

    module.forward = forward


def summed_backwards(module: nn.Module) -> None:
    assert isinstance(module, nn.Linear)
    module.forward = lambda x: F.linear(x.flip(-1), module.weight.flip(-1), module.bias)


REFERENCE_RUN = [
    pytest.param("small-vit", on("encoder.layers.encoder_layer_0.self_attention", unfused), id="unfused attention"),
    pytest.param(
        "small-vit", on("encoder.layers.encoder_layer_0.mlp.0", summed_backwards), id="another order of a sum"
    ),
    pytest.param(
        "small-vit",
        with_optimizer(lambda p: torch.optim.AdamW(p, **ADAM_SETTINGS, foreach=False)),
        id="a loop for foreach",
    ),
    pytest.param("small-resnet", on("fc", summed_backwards), id="another order of a sum behind batch normalisation"),
    pytest.param("small-vit", lambda model, plan: (move(copy.deepcopy(model), "another"), plan), id="moved by an ulp"),
    pytest.param(
        "small-resnet",
        lambda model, plan: (model.to(memory_format=torch.channels_last), plan),
        id="channels last",
    ),
]


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize(("model", "variation"), REFERENCE_RUN)
def test_a_correct_variation_is_accused_of_nothing(model: str, variation: Change) -> None:
    assert wrong(model, variation) == {}
    assert first_of(model, variation) == ""
