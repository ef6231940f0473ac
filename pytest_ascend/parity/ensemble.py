"""The correct result, and the spread of reference runs: one computation in float64, several in the device's dtype.

A backward-stable implementation returns the exact result for slightly different weights. So the CPU also computes
with weights moved by an ulp. The drift of these results is how far a correct device may differ; it grows with each
step of a training, as on the device. A training that differs by more is repeated step by step, to find the first
quantity that does, by comparing fingerprints of all quantities.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.parity.training import Recipe, changes, optimizer_state, running_statistics, steps
from pytest_ascend.precision import Samples, compare
from pytest_ascend.precision.formats import ALLOWANCES, INTEGERS
from pytest_ascend.precision.kernel_fallbacks import (
    autocast_elsewhere,
    kernel_fallbacks,
    products_in_float32,
    without_onednn,
)
from pytest_ascend.precision.orders import other_order
from pytest_ascend.run import inputs

#: Computed tensors, by kind ("forward", "gradients") and then by name.
Observed: TypeAlias = Mapping[str, Mapping[str, Tensor]]
#: A computation that receives a model of its own.
Compute: TypeAlias = Callable[[nn.Module], Observed]


#: Number of perturbed reference runs. Their largest error approximates that of any correct run; five suffice.
MOVES = 5

#: Units in the last place of float32 by which a weight moves; more under autocast, so that some weights round to a
#: neighbouring value: half a unit of bfloat16 or float16 is 2**15 or 2**12 units of float32.
PERTURBATIONS = {None: 1, torch.bfloat16: 2**14, torch.float16: 2**11}


@dataclass(frozen=True, slots=True)
class Reference:
    """The correct result, in float64, and reference runs in the device's own dtype."""

    exact: Observed
    reference_runs: tuple[Observed, ...]

    def expected(self, kind: str) -> dict[str, Tensor]:
        """Return the correct tensors of one kind."""
        return dict(self.exact[kind])

    def losses(self, actual: Tensor) -> Iterator[tuple[str, list[float]]]:
        """Yield named loss curves (steps,): the device's, the correct one, and the range of the reference runs."""
        yield "loss_actual", actual.double().tolist()
        yield "loss_expected", self.exact["curve"]["losses"].tolist()
        runs = torch.stack([each["curve"]["losses"].double() for each in self.reference_runs])
        yield "loss_low", runs.amin(0).tolist()
        yield "loss_high", runs.amax(0).tolist()

    def samples(self, kind: str, like: Mapping[str, Tensor] | None = None) -> Samples:
        """Return the reference runs of one kind, in the dtypes of ``like`` if given."""
        return Samples(
            {name: each.to(like[name].dtype) if like and name in like else each for name, each in run[kind].items()}
            for run in self.reference_runs
        )


def channels_last(model: nn.Module) -> nn.Module:
    """Make convolutions run channels-last, by other kernels."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def reference(
    model: nn.Module,
    exactly: Compute,
    in_dtype: Compute,
    autocast: torch.dtype | None = None,
    moves: int = MOVES,
    *,
    orders: bool = False,
) -> Reference:
    """Compute on the CPU from copies of ``model``: in float64, in its own dtype, and in that with moved weights.

    ``exactly`` receives the float64 copy, ``in_dtype`` the others; under ``autocast`` the weights move further. With
    ``orders``, reference runs in other summation orders are added: after few steps, these show more than moved weights.
    """
    by = PERTURBATIONS[autocast]
    moved = (move(copy.deepcopy(model), f"move {number}", by) for number in range(moves))
    with products_in_float32(), kernel_fallbacks([]):
        reference_runs = [in_dtype(each) for each in (copy.deepcopy(model), *moved)]
        with other_order(), autocast_elsewhere():
            reference_runs.append(in_dtype(copy.deepcopy(model)))
        exact = exactly(copy.deepcopy(model).double())
        if orders:
            reference_runs.append(in_dtype(channels_last(copy.deepcopy(model))))
            with without_onednn():
                reference_runs.append(in_dtype(copy.deepcopy(model)))
    return Reference(exact, tuple(reference_runs))


def move(model: nn.Module, key: str, by: int = 1, *, numbers: str = "parity") -> nn.Module:
    """Move every weight by -1, 0 or 1 times ``by`` units in the last place, chosen by ``key``; return the model.

    A backward-stable implementation returns the exact result for slightly different weights. Several such moves show
    how gradients change when rounding pushes a value across the kink of a ReLU. Under autocast, ``by`` must be large
    enough that some weights round to a neighbouring value. ``numbers`` is the prefix of the random streams.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point() or parameter.element_size() == 1:
                continue
            parameter.copy_(moved(parameter.detach(), f"{numbers}/{key}/{name}", by))
    return model


def moved(weight: Tensor, key: str, by: int = 1) -> Tensor:
    """Return a floating-point tensor with its elements moved as by :func:`move`."""
    bits = weight.view(INTEGERS[weight.element_size()])  # as integers, one unit in the last place is 1
    step = inputs.integers(key, tuple(weight.shape), low=-1, high=2).to(bits.dtype)
    return (bits + by * step.where(weight != 0, 0)).view(weight.dtype)  # zero has no neighbouring bit patterns


#: Elements kept unchanged, and sums with random signs. The signs repeat after a prime number of buckets, so that no
#: two images, channels or rows of a tensor start with the same signs, and swapped ones are noticed.
KEPT = BUCKETS = 64
PERIOD = BUCKETS * 1021
_signs = cache(partial(inputs.signs, "parity/fingerprint", PERIOD))


def fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the fingerprint of each tensor."""
    return {name: fingerprint(tensor) for name, tensor in tensors.items()}


def fingerprint(tensor: Tensor) -> Tensor:
    """Return a vector on the CPU in the tensor's dtype: all elements, or ``KEPT`` elements and ``BUCKETS`` sums.

    The sums cover all elements, with random signs, and are about as large as the elements: an error anywhere affects
    one of them, and errors of reference runs keep their relative size.
    """
    flat = tensor.detach().cpu().flatten()
    if flat.numel() <= KEPT + BUCKETS:
        return flat.clone()
    places = torch.arange(KEPT) * (flat.numel() - 1) // (KEPT - 1)
    rows = -(-flat.numel() // BUCKETS)
    total = torch.zeros(PERIOD, dtype=torch.float64)
    for part in torch.split(flat, PERIOD):  # all of it in float64 exceeds the caches, and takes eight times as long
        total[: len(part)] += part
    # A power of two near the square root of the number of elements per sum.
    sums = (total * _signs()).reshape(-1, BUCKETS).sum(0) * 2.0 ** -((rows.bit_length() - 1) // 2)
    return torch.cat([flat[places], sums.to(flat.dtype)])


def trace(model: nn.Module, recipe: Recipe, device: torch.device | str = "cpu") -> Observed:
    """Train ``model``, which is modified, and return fingerprints of each quantity after each step.

    Keys such as "step 3, gradient" are in the order of computation; values are tensors by name.
    """
    seen: dict[str, Mapping[str, Tensor]] = {}
    before = {name: each.detach().to("cpu", copy=True) for name, each in model.named_parameters()}
    for number, (loss, optimizer) in enumerate(steps(model, recipe, device), start=1):
        # In the order of computation, since the first wrong one causes the others.
        quantities = {
            "loss": {"loss": loss},
            "running statistics": running_statistics(model),
            "gradient": {name: each.grad for name, each in model.named_parameters() if each.grad is not None},
            "optimizer state": dict(optimizer_state(model, optimizer)),
            "weight": changes(model, before),
        }
        for quantity, tensors in quantities.items():
            seen[f"step {number}, {quantity}"] = fingerprints(tensors)
    return seen


def first_wrong(actual: Observed, right: Reference, *, branching: bool, any_dtype: bool = False) -> str:
    """Return the first step and quantity at which a :func:`trace` has larger errors than reference runs; "" for none.

    ``branching`` means that the model's gradients pass through comparisons; with ``any_dtype``, reference runs are
    converted to the dtypes of the device's results. Optimizers may name their state differently: only common names are
    compared.
    """
    for key, found in actual.items():
        wanted, quantity = right.expected(key), key.partition(", ")[2]
        reference_runs = right.samples(key, found if any_dtype else None)
        shared = [name for name in found if name in wanted]
        verdict = compare(
            {name: found[name] for name in shared},
            {name: wanted[name] for name in shared},
            reference_runs=Samples({name: each[name] for name in shared} for each in reference_runs),
            name=quantity,
            # Their gradients pass through comparisons, such as a ReLU's.
            branching=branching and quantity in ("gradient", "optimizer state", "weight"),
            accumulation=ALLOWANCES.terms if quantity == "running statistics" else None,
        )
        wrong = [name for name, leaf in zip(shared, verdict.leaves, strict=True) if not leaf.agrees]
        if wrong and quantity == "loss":
            return f"first wrong at {key}"
        if wrong:
            # The one computed first: gradients run from the last layer to the first.
            first = wrong[-1] if quantity == "gradient" else wrong[0]
            others = f" ({len(wrong)} of {len(found)} are)" if len(wrong) > 1 else ""
            return f"first wrong at {key} of {first}{others}"
    return ""
