"""Twenty steps of training give the curve, the weights and the optimizer's state that PyTorch promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest
import torch

from pytest_ascend.parity.ensemble import Observed, Reference, one_thread, reference
from pytest_ascend.parity.training import train
from pytest_ascend.run.comparing import PrecisionCompare

from .catalogue import CASES_OF_RUNS, Run
from .models import make
from .recipes import MODES, recipe

Trained: TypeAlias = Callable[[Run], tuple[Observed, Reference]]
Measure: TypeAlias = Callable[[str, float | list[float]], None]


@pytest.fixture(scope="module")
def trained(npu_device: torch.device) -> Trained:
    """Train once for all that is looked at, on the device and on the CPU."""

    @cache
    def both(run: Run) -> tuple[Observed, Reference]:
        with one_thread():
            actual = train(make(run.model), recipe(run.optimizer, run.mode, on_device=True), npu_device)
            return actual, expected(run)

    return both


def expected(run: Run) -> Reference:
    """Train on the CPU: in float64, and honestly in several ways."""
    exact, honest = recipe(run.optimizer), recipe(run.optimizer, run.mode)
    return reference(
        make(run.model), lambda model: train(model, exact), lambda model: train(model, honest), MODES[run.mode]
    )


@pytest.mark.parametrize(
    ("run", "kind"),
    [pytest.param(run, kind, marks=pytest.mark.ascend_case(case), id=case.id) for run, kind, case in CASES_OF_RUNS],
)
def test_training(
    run: Run, kind: str, trained: Trained, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    actual, right = trained(run)
    if kind == "curve":
        ascend_measure("loss_actual", actual[kind]["losses"].double().tolist())
        ascend_measure("loss_expected", right.expected(kind)["losses"].tolist())
    found, wanted = actual[kind], right.expected(kind)
    shared = found.keys() & wanted.keys()
    # Rounding moves a value across the kink of a ReLU here and there, which some gradients show and no sum does.
    branching = run.model == "small-resnet" and kind in {"weights", "state"}
    precision_compare(
        {name: found[name] for name in sorted(found) if name in shared or kind != "state"},
        {name: wanted[name] for name in sorted(wanted) if name in shared or kind != "state"},
        honest=right.samples(kind),
        name=kind,
        branching=branching,
    )
