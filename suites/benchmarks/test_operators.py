"""How long single operators take, and how much of the chip they use."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.performance.benchmarking import AscendBenchmark, Work
from pytest_ascend.performance.estimate import PLACES
from pytest_ascend.performance.timing import Call
from pytest_ascend.records.case import Case

from . import LAUNCH, OPERATORS
from .sizes import preparations, sizes_of

#: Seconds of rounds: inputs lie at many places in turn where the device shares the host's processor.
BUDGET_S = 1.5


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.id)
def test_operator(case: Case, ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    row, sizes, dtype = OPERATORS[case], sizes_of(ascend_device), getattr(torch, case.dtype)
    places = preparations(ascend_device, row.held_bytes(sizes, dtype), PLACES)
    ascend_benchmark(row.make(sizes, dtype), row.work(sizes, dtype), budget_s=BUDGET_S, preparations=places)


@pytest.mark.ascend_case(LAUNCH)
def test_launch(ascend_benchmark: AscendBenchmark) -> None:
    """A tensor so small that nothing but the way to the device takes time."""

    def prepared(device: torch.device) -> Call:
        x = torch.ones(4, 4, device=device)
        return lambda: torch.add(x, 1.0)

    ascend_benchmark(prepared, Work(items=1))
