"""The cases of ``--ascend-explore``. Without that option this file is not collected, as it is not a ``test_*.py``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.exploring import explore, write
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.sweep import SweepReference
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import PrecisionCompare

from .table import swept


@pytest.mark.ascend_explores
def test_explore(
    case: Case,
    seconds: float,
    seed: int,
    findings: Path,
    npu_device: torch.device,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
    _ascend_reproduce: Callable[..., None],
) -> None:
    operator = swept(case.subject, case.dtype, golden_store)
    target = Target(case, operator, SweepReference.of(operator, case.dtype), npu_device)
    _ascend_reproduce(partial(program, target), saves=True)
    explore(target, precision_compare, ascend_measure, seed=seed, seconds=seconds, keep=partial(write, findings))
