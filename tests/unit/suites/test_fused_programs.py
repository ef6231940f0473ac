"""Each case of torch_npu's own operators can be written down as a program, should it fail."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_ascend.operators import Operator, cases_of
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.failing import SavedCall, program
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.sweep import CALLS, SweepReference
from pytest_ascend.operators.target import Target
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.fused import CASES, NOT_SWEPT, OPERATORS

DEVICE = torch.device("cpu")


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_case_has_a_program(operator: Operator, tmp_path: Path) -> None:
    for case in cases_of(operator, suite="fused"):
        ast.parse(program(Target(case, operator, Definition(operator), DEVICE), tmp_path, None))
        (file,) = tmp_path.iterdir()
        assert SavedCall.load(file).args
        file.unlink()


def test_each_operator_has_generated_calls_or_a_reason() -> None:
    """At standard in its first dtype."""
    swept = {case.subject for case in CASES if case.property == "sweep" and case.level == "standard"}
    names = {each.name for each in OPERATORS}
    assert swept | set(NOT_SWEPT) == names
    assert not swept & set(NOT_SWEPT)
    assert all(NOT_SWEPT.values())


def _tail_not_written(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    found = (x * torch.sigmoid(1.702 * x)).contiguous()
    found.view(-1)[1 << 11 :] = 0
    return found


def test_a_fault_beyond_the_sizes_of_the_table_is_seen() -> None:
    fast_gelu = next(each for each in OPERATORS if each.name == "npu_fast_gelu")
    largest = max(value.tensor.numel() for sample in fast_gelu.samples("float32") for value in sample.values())
    assert largest < 1 << 11
    wrong = replace(fast_gelu, function=_tail_not_written, grad=False)
    case = next(each for each in CASES if each.subject == "npu_fast_gelu" and each.property == "sweep")
    target = Target(case, wrong, SweepReference.of(wrong, "float32", CALLS["sweep"], defined=True), DEVICE)
    with pytest.raises(Disagreement, match="made smaller"):
        check(target, PrecisionCompare(lambda _: None))
