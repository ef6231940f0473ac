"""A captured computation gives the bits of the eager one, at each replay and with any inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from .compiled import COMPILED
from .server import served
from .workloads import WORKLOADS, operator

CHECKS = {**WORKLOADS, **COMPILED, "server": served}


@pytest.mark.ascend_cases("graphs")
def test_graphs(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    def same(actual: torch.Tensor, expected: torch.Tensor, where: str, locate: Callable[[], str] | None = None) -> None:
        found, wanted = actual.detach().cpu(), expected.detach().cpu()
        precision_compare(found, wanted, standard="binary", name=where, locate=locate and (lambda _: locate()))

    if case.property == "operator":
        operator(case.subject, case.dtype, npu_device, same)
    else:
        CHECKS[case.subject](npu_device, same)
