"""Short programs, each compared with its definition on the CPU in float64, and bit for bit where exact."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from ..runtime.rows import At
from . import TABLES


@pytest.mark.ascend_cases("programs")
def test_programs(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    TABLES[case.property][case.subject][1](At(npu_device, precision_compare))
