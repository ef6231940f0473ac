"""The first training step at which a device goes wrong, and in which quantity: for the message on a divergence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.parity.ensemble import Observed, Reference
from pytest_ascend.parity.training import Recipe, changes, optimizer_state, running_statistics, steps
from pytest_ascend.precision import Samples, compare
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.run import inputs

#: Elements kept unchanged, and sums with random signs.
KEPT = BUCKETS = 64
#: The signs repeat after this many elements: a prime number of buckets, so that no image, channel or row of a tensor
#: begins where another did, and swapped ones are noticed.
PERIOD = BUCKETS * 1021


def fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the fingerprint of each tensor."""
    return {name: fingerprint(tensor) for name, tensor in tensors.items()}


def fingerprint(tensor: Tensor) -> Tensor:
    """Return a vector on the CPU in the tensor's dtype: the whole tensor, or ``KEPT`` elements and ``BUCKETS`` sums.

    The sums cover all elements, with random signs, and are about as large as the elements: an error anywhere is in one
    of them, and errors of reference runs keep their relative size.
    """
    flat = tensor.detach().cpu().flatten()
    if flat.numel() <= KEPT + BUCKETS:
        return flat.clone()
    places = torch.arange(KEPT) * (flat.numel() - 1) // (KEPT - 1)
    rows = -(-flat.numel() // BUCKETS)
    total = torch.zeros(PERIOD, dtype=torch.float64)
    for part in torch.split(flat, PERIOD):  # the whole in float64 fits no cache, and takes eight times as long
        total[: len(part)] += part
    # A power of two near the square root of the number of elements in a sum.
    sums = (total * _signs()).reshape(-1, BUCKETS).sum(0) * 2.0 ** -((rows.bit_length() - 1) // 2)
    return torch.cat([flat[places], sums.to(flat.dtype)])


@cache
def _signs() -> Tensor:
    return inputs.signs("parity/fingerprint", PERIOD)


#: Makes results comparable: takes a reference run's and the device's tensors by name, returns the former adapted.
Fit: TypeAlias = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Mapping[str, Tensor]]


def trace(model: nn.Module, recipe: Recipe, device: torch.device | str = "cpu") -> Observed:
    """Train ``model``, which is changed, and return fingerprints of each quantity after each step.

    Keys are like "step 3, gradient", in the order of computation; values are tensors by name.
    """
    seen: dict[str, Mapping[str, Tensor]] = {}
    model.to(device)
    before = {name: each.detach().to("cpu", copy=True) for name, each in model.named_parameters()}
    for number, (loss, optimizer) in enumerate(steps(model, recipe, device), start=1):
        gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
        # In the order of computation: the first wrong one caused the others.
        quantities = {
            "loss": {"loss": loss},
            "running statistics": running_statistics(model),
            "gradient": gradients,
            "optimizer state": dict(optimizer_state(model, optimizer)),
            "weight": changes(model, before),
        }
        for quantity, tensors in quantities.items():
            seen[f"step {number}, {quantity}"] = fingerprints(tensors)
    return seen


def first_wrong(actual: Observed, right: Reference, *, branching: bool, fit: Fit | None = None) -> str:
    """Return the first step and quantity at which a :func:`trace` is further off than reference runs; "" for none.

    ``branching`` says that the model's gradients go through comparisons. Optimizers may name their state differently:
    common names are compared.
    """
    for key, found in actual.items():
        wanted, quantity = right.expected(key), key.partition(", ")[2]
        reference_runs = right.samples(key) if fit is None else Samples(fit(each, found) for each in right.samples(key))
        shared = [name for name in found if name in wanted]
        verdict = compare(
            {name: found[name] for name in shared},
            {name: wanted[name] for name in shared},
            reference_runs=Samples({name: each[name] for name in shared} for each in reference_runs),
            name=quantity,
            # These go backward through comparisons, such as a ReLU's.
            branching=branching and quantity in ("gradient", "optimizer state", "weight"),
            accumulation=ALLOWANCES.terms if quantity == "running statistics" else None,
        )
        wrong = [name for name, leaf in zip(shared, verdict.leaves, strict=True) if not leaf.agrees]
        if wrong and quantity == "loss":
            return f"first wrong at {key}"
        if wrong:
            # The first that was computed: gradients run from the last layer to the first.
            first = wrong[-1] if quantity == "gradient" else wrong[0]
            others = f" ({len(wrong)} of {len(found)} are)" if len(wrong) > 1 else ""
            return f"first wrong at {key} of {first}{others}"
    return ""
