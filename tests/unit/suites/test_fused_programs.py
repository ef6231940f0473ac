"""Each case of torch_npu's own operators can be written down as a program, should it fail."""

from __future__ import annotations

import ast

import pytest
import torch

from pytest_ascend.operators import Operator, cases_of
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.reproducing import program
from pytest_ascend.operators.target import Target
from suites.fused import OPERATORS

DEVICE = torch.device("cpu")


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_case_has_a_program(operator: Operator) -> None:
    for case in cases_of(operator, suite="fused"):
        ast.parse(program(Target(case, operator, Definition(operator), DEVICE), None))
