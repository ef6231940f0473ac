"""From operators to tests that pytest finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from pytest_ascend.operators.checks import check
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.properties import cases_of
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.reproducing import program
from pytest_ascend.operators.sweep import CALLS, Sweep
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

#: The suite of users' operators; the cases of any other are in the manifest.
USER = "user"


def conformance_tests(*operators: Operator, suite: str = USER) -> Callable[..., None]:
    """Return a test function of all cases of these operators, to be assigned to a name that begins with ``test``.

    Raises UsageError as :func:`cases_of` does.
    """
    table = {operator.name: operator for operator in operators}
    cases = cases_of(*operators, suite=suite) if suite == USER else ()
    chosen = (
        pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
        if suite == USER
        else pytest.mark.ascend_cases(suite)
    )

    @chosen
    def test(
        case: Case,
        npu_device: torch.device,
        precision_compare: PrecisionCompare,
        ascend_reproduce: Callable[..., None],
    ) -> None:
        operator = table[case.subject]
        swept = CALLS.get(case.property)
        generated = Sweep.of(operator, case.dtype, swept, defined=True) if swept else None
        target = Target(case, operator, generated or Definition(operator), npu_device)
        ascend_reproduce(partial(program, target))
        check(target, precision_compare)

    found: Callable[..., None] = test
    return found
