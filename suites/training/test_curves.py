"""Twenty steps of training give the curve, the weights and the optimizer's state that PyTorch promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest
import torch
from torch import nn

from pytest_ascend.parity.ensemble import Observed, Reference, one_thread, reference
from pytest_ascend.parity.steps import first_wrong, trace
from pytest_ascend.parity.training import Recipe, train
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_RUNS, Run
from .recipes import MODES, make, recipe

Trained: TypeAlias = Callable[[Run], tuple[Observed, Reference]]
Train: TypeAlias = Callable[[nn.Module, Recipe, torch.device | str], Observed]
Measure: TypeAlias = Callable[[str, float | list[float]], None]


@pytest.fixture(scope="module")
def trained(npu_device: torch.device) -> Trained:
    """Train once for all that is looked at, on the device and on the CPU."""

    @cache
    def both(run: Run) -> tuple[Observed, Reference]:
        return on_both(run, train, npu_device)

    return both


def on_both(run: Run, by: Train, device: torch.device) -> tuple[Observed, Reference]:
    """Train ``by`` a function on the device, and on the CPU: in float64, and honestly in several ways."""
    exact, honest = recipe(run.optimizer), recipe(run.optimizer, run.mode)
    with one_thread():
        actual = by(make(run.model), recipe(run.optimizer, run.mode, on_device=True), device)
        return actual, reference(
            make(run.model),
            lambda model: by(model, exact, "cpu"),
            lambda model: by(model, honest, "cpu"),
            MODES[run.mode],
            orders=by is trace,
        )


@pytest.mark.parametrize(
    ("run", "kind"),
    [pytest.param(run, kind, marks=pytest.mark.ascend_case(case), id=case.id) for run, kind, case in CASES_OF_RUNS],
)
def test_training(
    run: Run,
    kind: str,
    trained: Trained,
    npu_device: torch.device,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
) -> None:
    actual, right = trained(run)
    if kind == "curve":
        ascend_measure("loss_actual", actual[kind]["losses"].double().tolist())
        ascend_measure("loss_expected", right.expected(kind)["losses"].tolist())
        for end, values in zip(("loss_low", "loss_high"), right.spread(kind, "losses"), strict=True):
            ascend_measure(end, values)
    found, wanted = actual[kind], right.expected(kind)
    shared = found.keys() & wanted.keys()
    # Rounding moves a value across the kink of a ReLU here and there, which some gradients show and no sum does.
    branching = run.model == "small-resnet"
    precision_compare(
        {name: found[name] for name in sorted(found) if name in shared or kind != "state"},
        {name: wanted[name] for name in sorted(wanted) if name in shared or kind != "state"},
        honest=right.samples(kind),
        name=kind,
        branching=branching and kind in {"weights", "state"},
        locate=lambda _: (
            first_wrong(*on_both(run, trace, npu_device), branching=branching)
            or "trained again to find the first wrong step, none is further off by itself than honest ones"
        ),
    )
