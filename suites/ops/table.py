"""Every operator of the suite, by name, and where what is right for it is found."""

from __future__ import annotations

import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.recorded.index import Entry, load
from pytest_ascend.operators.recorded.replay import operator_of, recording
from pytest_ascend.operators.stored import StoredGolden
from pytest_ascend.operators.sweep import CALLS, Sweep
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case

from .families import (
    activation,
    arithmetic,
    comparison,
    creation,
    elementwise,
    indexing,
    linear,
    loss,
    movement,
    network,
    reduction,
    sorting,
)

_FAMILIES = (
    activation,
    arithmetic,
    comparison,
    creation,
    elementwise,
    indexing,
    linear,
    loss,
    movement,
    network,
    reduction,
    sorting,
)


def _by_name() -> dict[str, Operator]:
    operators = [operator for family in _FAMILIES for operator in family.OPERATORS]
    table = {operator.name: operator for operator in operators}
    if len(table) < len(operators):
        names = [operator.name for operator in operators]
        raise ValueError(f"two operators have one name: {sorted({each for each in names if names.count(each) > 1})}")
    return table


#: Every operator of the catalogue, by name.
OPERATORS: dict[str, Operator] = _by_name()
#: Every recorded operator, by name; what the catalogue has as well is tested from there, in its dtypes.
RECORDED: dict[str, Entry] = load()


def is_recorded(name: str, dtype: str) -> bool:
    """Whether the samples of an operator in a dtype are recorded ones."""
    return name not in OPERATORS or dtype not in OPERATORS[name].dtypes


def target_of(case: Case, device: torch.device, store: GoldenStore) -> Target:
    """Return the operator that a case is about, with its golden. Raises GoldenError."""
    if is_recorded(case.subject, case.dtype):
        entry = RECORDED[case.subject]
        return Target(case, operator_of(entry), recording(store, entry.golden_id), device)
    operator = OPERATORS[case.subject]
    if case.property in CALLS:
        return Target(case, operator, Sweep.of(operator, case.dtype, CALLS[case.property]), device)
    return Target(case, operator, StoredGolden(operator, store), device)
