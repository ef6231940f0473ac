"""The right result, and the spread of reference runs: one computation in float64, several in the device's dtype.

A backward-stable implementation returns the exact result for slightly different weights. So the CPU also computes
from weights moved by an ulp. The drift of these results is what a correct device may differ by; it grows from step to
step of a training as it does on the device.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.precision import Samples
from pytest_ascend.precision.orders import other_order
from pytest_ascend.precision.stand_ins import autocast_elsewhere, products_in_float32, stand_ins, without_onednn
from pytest_ascend.run import inputs

#: Computed tensors, by kind ("forward", "gradients") and then by name.
Observed: TypeAlias = Mapping[str, Mapping[str, Tensor]]
#: A computation that gets a model of its own.
Compute: TypeAlias = Callable[[nn.Module], Observed]

#: Integer types in which one unit in the last place is 1.
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float64: torch.int64}

#: Further reference runs. Their largest error stands for that of any correct run: with five it is close.
MOVES = 5

#: Units of float32 by which a weight moves under autocast, so that some round to a neighbouring value: half a unit
#: of bfloat16 or float16 is 2**15 or 2**12 units of float32.
MOVED_BY = {None: 1, torch.bfloat16: 2**14, torch.float16: 2**11}


@dataclass(frozen=True, slots=True)
class Reference:
    """The right result, in float64, and reference runs in the device's own dtype."""

    exact: Observed
    reference_runs: tuple[Observed, ...]

    def expected(self, kind: str) -> dict[str, Tensor]:
        """Return the right tensors of one kind."""
        return dict(self.exact[kind])

    def losses(self, actual: Tensor) -> Iterator[tuple[str, list[float]]]:
        """Yield the measurements of a device's loss curve (steps,): it, the right one, the ends of reference runs."""
        yield "loss_actual", actual.double().tolist()
        yield "loss_expected", self.exact["curve"]["losses"].tolist()
        runs = torch.stack([each["curve"]["losses"].double() for each in self.reference_runs])
        yield "loss_low", runs.amin(0).tolist()
        yield "loss_high", runs.amax(0).tolist()

    def samples(self, kind: str) -> Samples:
        """Return reference runs of one kind."""
        return Samples(dict(each[kind]) for each in self.reference_runs)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread: tensors of these sizes take longer in several, much longer on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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

    ``exactly`` gets the copy in float64, ``in_dtype`` the others; under ``autocast`` the weights move further. With
    ``orders``, reference runs in other orders of summation are added: after few steps, moved weights show less than
    these.
    """
    by = MOVED_BY[autocast]
    moved = (move(copy.deepcopy(model), f"move {number}", by) for number in range(moves))
    with products_in_float32(), stand_ins([]):
        reference_runs = [in_dtype(each) for each in (copy.deepcopy(model), *moved)]
        with other_order(), autocast_elsewhere():
            reference_runs.append(in_dtype(copy.deepcopy(model)))
        exact = exactly(copy.deepcopy(model).double())
        if orders:
            reference_runs.append(in_dtype(channels_last(copy.deepcopy(model))))
            with without_onednn():
                reference_runs.append(in_dtype(copy.deepcopy(model)))
    return Reference(exact, tuple(reference_runs))


def move(model: nn.Module, key: str, by: int = 1) -> nn.Module:
    """Move every weight by -1, 0 or 1 times ``by`` units in the last place, chosen by ``key``; return the model."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            bits = BITS.get(parameter.dtype)
            if bits is None:
                continue
            step = inputs.integers(f"parity/{key}/{name}", tuple(parameter.shape), low=-1, high=2).to(bits)
            step[parameter == 0] = 0  # zero has no neighbouring bit patterns
            changed = parameter.detach().clone()
            changed.view(bits).add_(step * by)
            parameter.copy_(changed)
    return model
