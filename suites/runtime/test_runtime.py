"""Streams, events, memory, copies, refusals: checks are exact, and a failure names its cause."""

from __future__ import annotations

import gc

import pytest
import torch

from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from . import TABLES
from .rows import At


@pytest.mark.ascend_cases("runtime")
def test_runtime(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    at = At(npu_device, precision_compare)
    assert case.property != "streams" or at.backend
    if case.property == "costs" or case.subject == "out-of-memory":
        gc.collect()  # so that reference cycles of earlier cases are not freed while memory is counted
        gc.freeze()  # the next collection need not visit again what lives
    TABLES[case.property][case.subject][1](at)
