"""The catalogue: every operator, and the cases that come of it. Loading it makes no tensor and reads no golden."""

from __future__ import annotations

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
from .operator import Operator
from .properties import PROPERTIES, applies, level

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


def _case(operator: Operator, property_: str, dtype: str) -> Case:
    return Case(
        suite="ops",
        subject=operator.name,
        property=property_,
        dtype=dtype,
        family=operator.family,
        level=level(property_, dtype),
    )


#: Every operator, by name.
OPERATORS: dict[str, Operator] = _by_name()

CASES: tuple[Case, ...] = tuple(
    _case(operator, property_, dtype)
    for operator in OPERATORS.values()
    for dtype in operator.dtypes
    for property_ in PROPERTIES
    if applies(operator, property_, dtype)
)


def cases(property_: str) -> tuple[Case, ...]:
    """Give the cases of one property."""
    return tuple(case for case in CASES if case.property == property_)
