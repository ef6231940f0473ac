"""GradScaler does what torch.amp documents: an Inf costs one step and half the scale, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_ascend.parity.training import scaler_of
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_SCALER

SCALE = 1024.0
INTERVAL = 3


class CaseContext:
    """Two parameters under a scaler that grows every INTERVAL steps; one of them gets a gradient that is not finite."""

    def __init__(self, device: torch.device, *, enabled: bool = True) -> None:
        self.weights = [nn.Parameter(torch.tensor(values, device=device)) for values in ([1.0, 2.0], [3.0, 4.0, 5.0])]
        self.optimizer = torch.optim.SGD(self.weights, lr=0.5, momentum=0.5)
        self.scaler = scaler_of(device.type, SCALE, growth_interval=INTERVAL, enabled=enabled)

    def step(self, value: float = 1.0) -> list[torch.Tensor]:
        """Make a step in which every gradient is 1, but for one element that is ``value``; give the weights."""
        self.optimizer.zero_grad()
        loss = sum((weight.sum() for weight in self.weights[1:]), self.weights[0].sum())
        torch.autograd.backward(self.scaler.scale(loss))
        gradient = self.weights[1].grad
        assert gradient is not None
        gradient[2] *= value
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.now()

    def now(self) -> list[torch.Tensor]:
        """Return the weights as they are, on the CPU."""
        return [weight.detach().cpu().clone() for weight in self.weights]


def _skips(device: torch.device, compare: PrecisionCompare, value: float) -> None:
    trial = CaseContext(device)
    before = trial.step()
    compare(trial.step(value), before, standard="binary", name="weights after a step without finite gradients")
    after = trial.step()
    expected = [before[0] - 0.75, before[1] - 0.75]  # the momentum of the first step is left as it was: 1 + 0.5
    compare(after, expected, standard="binary", name="weights after the next step")


def _inf(device: torch.device, compare: PrecisionCompare) -> None:
    _skips(device, compare, float("inf"))


def _nan(device: torch.device, compare: PrecisionCompare) -> None:
    _skips(device, compare, float("nan"))


def _halves(device: torch.device, compare: PrecisionCompare) -> None:
    trial = CaseContext(device)
    scales = []
    for value in (1.0, float("inf"), float("-inf"), 1.0):
        trial.step(value)
        scales.append(trial.scaler.get_scale())
    compare(scales, [SCALE, SCALE / 2, SCALE / 4, SCALE / 4], standard="binary", name="scales")


def _grows(device: torch.device, compare: PrecisionCompare) -> None:
    trial = CaseContext(device)
    scales = []
    for value in (1.0, float("inf"), *[1.0] * (2 * INTERVAL)):
        trial.step(value)
        scales.append(trial.scaler.get_scale())
    half = SCALE / 2
    expected = [SCALE, half, half, half, SCALE, SCALE, SCALE, 2 * SCALE]
    compare(scales, expected, standard="binary", name="scales")


def _unscales(device: torch.device, compare: PrecisionCompare) -> None:
    trial = CaseContext(device)
    loss = trial.weights[0].square().sum() + trial.weights[1].sum()
    torch.autograd.backward(trial.scaler.scale(loss))
    trial.scaler.unscale_(trial.optimizer)
    gradients = [each.grad.cpu() for each in trial.weights if each.grad is not None]
    expected = [torch.tensor([2.0, 4.0]), torch.ones(3)]
    compare(gradients, expected, standard="binary", name="gradients")


def _disabled(device: torch.device, compare: PrecisionCompare) -> None:
    trial = CaseContext(device, enabled=False)
    before = trial.now()
    compare(trial.step(), [each - 0.5 for each in before], standard="binary", name="weights")


CHECKS: dict[str, Callable[[torch.device, PrecisionCompare], Any]] = {
    "inf-skips-the-step": _inf,
    "nan-skips-the-step": _nan,
    "scale-halves": _halves,
    "scale-grows-back": _grows,
    "unscale-is-exact": _unscales,
    "disabled": _disabled,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_SCALER]
)
def test_scaler(name: str, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    CHECKS[name](npu_device, precision_compare)
