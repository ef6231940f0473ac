"""ResNet50 and ViT-B/16 give the numbers that PyTorch promises: outputs, loss, gradients, and what training makes."""

from __future__ import annotations

from functools import cached_property

import pytest
import torch
from torch import Tensor

from pytest_ascend.golden import GoldenStore
from pytest_ascend.run.comparing import PrecisionCompare

from .catalogue import CASES_OF_RUN, PROPERTIES
from .computation import MODES, Observed, forward, train
from .goldens import expected, honest


class Computed:
    """What the device makes of a model in a mode: computed when it is first asked for, for several cases at once."""

    def __init__(self, model: str, mode: str, device: torch.device) -> None:
        self.model, self.mode, self.device = model, mode, device

    @cached_property
    def forward(self) -> Observed:
        return forward(self.model, MODES[self.mode], self.device)

    @cached_property
    def training(self) -> Observed:
        return train(self.model, MODES[self.mode], self.device)

    def observed(self, what: str) -> dict[str, Tensor]:
        """Give what was seen of a property."""
        return (self.forward if what == "forward" else self.training)[what]


@pytest.fixture(scope="module")
def computed(request: pytest.FixtureRequest, npu_device: torch.device) -> Computed:
    """Keep what was computed for the cases of one model and mode, and no longer."""
    model, mode = request.param
    return Computed(model, mode, npu_device)


@pytest.mark.parametrize(
    ("computed", "what"),
    [
        pytest.param(run, what, marks=pytest.mark.ascend_case(case), id=case.id)
        for run, cases in CASES_OF_RUN.items()
        for case, what in zip(cases, PROPERTIES, strict=True)
    ],
    indirect=["computed"],
)
def test_model(computed: Computed, what: str, golden_store: GoldenStore, precision_compare: PrecisionCompare) -> None:
    right = expected(golden_store, computed.model, what)
    allowed_by = honest(golden_store, computed.model, computed.mode, what)
    precision_compare(computed.observed(what), right, honest=allowed_by, name=what)
