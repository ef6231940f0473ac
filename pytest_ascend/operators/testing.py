"""From operators to tests that pytest finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.operator import Operator, cases_of
from pytest_ascend.operators.properties import check
from pytest_ascend.operators.reproducing import program
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare


def conformance_tests(*operators: Operator, suite: str = "user") -> Callable[..., None]:
    """Return a test function of all cases of these operators, to be assigned to a name that begins with ``test``.

    Raises UsageError where two operators have one name.
    """
    table = {operator.name: operator for operator in operators}
    if len(table) < len(operators):
        raise UsageError("two operators have one name", hint="give each a name of its own")
    cases = cases_of(*operators, suite=suite)

    @pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
    def test(
        case: Case,
        npu_device: torch.device,
        precision_compare: PrecisionCompare,
        ascend_reproduce: Callable[..., None],
    ) -> None:
        ascend_reproduce(partial(program, case, table[case.subject], npu_device))
        check(case, table[case.subject], npu_device, precision_compare)

    found: Callable[..., None] = test
    return found
