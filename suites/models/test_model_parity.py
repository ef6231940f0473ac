"""ResNet50 and ViT-B/16 give the numbers that PyTorch promises: outputs, loss, gradients, and what training makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from pytest_ascend.golden import GoldenStore
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_RUN, PROPERTIES
from .computation import MODES, Observed, forward, train
from .goldens import expected, honest

Observe: TypeAlias = Callable[[str, str, str], dict[str, Tensor]]

PARAMETERS = [
    pytest.param(*run, what, marks=pytest.mark.ascend_case(case), id=case.id)
    for run, cases in CASES_OF_RUN.items()
    for case, what in zip(cases, PROPERTIES, strict=True)
]


@pytest.fixture(scope="module")
def observe(npu_device: torch.device) -> Observe:
    """Return what the device makes of a model in a mode, by property; each model is trained once for three of them."""

    @cache
    def run(compute: Callable[..., Observed], model: str, mode: str) -> Observed:
        return compute(model, MODES[mode], npu_device)

    return lambda model, mode, what: run(forward if what == "forward" else train, model, mode)[what]


@pytest.mark.parametrize(("model", "mode", "what"), PARAMETERS)
def test_model(
    model: str,
    mode: str,
    what: str,
    observe: Observe,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
) -> None:
    right = expected(golden_store, model, what)
    allowed_by = honest(golden_store, model, mode, what)
    precision_compare(observe(model, mode, what), right, honest=allowed_by, name=what)
