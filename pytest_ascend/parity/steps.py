"""The first step of a training at which a device goes wrong, and what of it: for the message of one that diverged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pytest_ascend.parity.ensemble import Observed, Reference
from pytest_ascend.parity.fingerprint import fingerprints
from pytest_ascend.parity.training import Recipe, changes, optimizer_state, running_statistics, steps
from pytest_ascend.precision import Samples, compare
from pytest_ascend.precision.allowances import ALLOWANCES

#: What a step makes, in the order in which it is made: the first wrong of these led to the others.
QUANTITIES = ("loss", "running statistics", "gradient", "optimizer state", "weight")
#: Those that go back through comparisons, such as a ReLU's.
BRANCHING = ("gradient", "optimizer state", "weight")

#: Makes two results comparable: of honest tensors and the device's, by name, the honest ones.
Fit: TypeAlias = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Mapping[str, Tensor]]


def trace(model: nn.Module, recipe: Recipe, device: torch.device | str = "cpu") -> Observed:
    """Train ``model``, which is changed, and give fingerprints of each quantity after each step.

    Keys are as "step 3, gradient", in the order in which things are made; values tensors by name.
    """
    seen: dict[str, Mapping[str, Tensor]] = {}
    model.to(device)
    before = {name: each.detach().to("cpu", copy=True) for name, each in model.named_parameters()}
    for number, (loss, optimizer) in enumerate(steps(model, recipe, device), start=1):
        for quantity, tensors in zip(QUANTITIES, _made(model, optimizer, loss, before), strict=True):
            seen[f"step {number}, {quantity}"] = fingerprints(tensors)
    return seen


def _made(
    model: nn.Module, optimizer: Optimizer, loss: Tensor, before: Mapping[str, Tensor]
) -> tuple[Mapping[str, Tensor], ...]:
    """Return the tensors of each of QUANTITIES."""
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    statistics, state = running_statistics(model), dict(optimizer_state(model, optimizer))
    return {"loss": loss}, statistics, gradients, state, changes(model, before)


def first_wrong(actual: Observed, right: Reference, *, branching: bool, fit: Fit | None = None) -> str:
    """Say the first step, and what of it, at which a :func:`trace` is further off than honest ones.

    ``branching`` says that the model's gradients go through comparisons. Optimizers may keep their state under other
    names: what both have is compared.
    """
    for key, found in actual.items():
        wanted, quantity = right.expected(key), key.partition(", ")[2]
        honest = right.samples(key) if fit is None else Samples(fit(each, found) for each in right.samples(key))
        shared = [name for name in found if name in wanted]
        verdict = compare(
            {name: found[name] for name in shared},
            {name: wanted[name] for name in shared},
            honest=Samples({name: each[name] for name in shared} for each in honest),
            name=quantity,
            branching=branching and quantity in BRANCHING,
            accumulation=ALLOWANCES.terms if quantity == "running statistics" else None,
        )
        wrong = [name for name, leaf in zip(shared, verdict.leaves, strict=True) if not leaf.agrees]
        if wrong:
            return f"first wrong at {key}" + ("" if quantity == "loss" else f"{_named(wrong, quantity, len(found))}")
    return "trained again to find the first wrong step, nothing deviates at any step: results change from time to time"


def _named(wrong: list[str], quantity: str, count: int) -> str:
    """Name the one that was made first, and how many are wrong: gradients are made from the last layer to the first."""
    if quantity == "loss":
        return ""
    first = wrong[-1] if quantity == "gradient" else wrong[0]
    return f" of {first}" + (f" ({len(wrong)} of {count} are)" if len(wrong) > 1 else "")
