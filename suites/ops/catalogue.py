"""The catalogue: every operator, and the cases that come of it. Loading it makes no tensor and reads no golden."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.case import Case

from .corpus.index import Entry, stood_for, unsettled
from .corpus.index import load as load_recorded
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


def _case(name: str, family: str, property_: str, dtype: str, *, recorded: bool = False) -> Case:
    shown = level(property_, dtype, recorded=recorded)
    return Case(suite="ops", subject=name, property=property_, dtype=dtype, family=family, level=shown)


#: Every operator of the catalogue, by name.
OPERATORS: dict[str, Operator] = _by_name()
#: Every operator that samples were recorded of, by name; what the catalogue has as well is asked there, in its dtypes.
RECORDED: dict[str, Entry] = load_recorded()


def is_recorded(name: str, dtype: str) -> bool:
    """Whether the samples of an operator in a dtype are recorded ones."""
    return name not in OPERATORS or dtype not in OPERATORS[name].dtypes


def _written() -> Iterator[Case]:
    for operator in OPERATORS.values():
        for dtype in operator.dtypes:
            asked = (each for each in PROPERTIES if applies(operator, each, dtype))
            yield from (_case(operator.name, operator.family, each, dtype) for each in asked)


def _recorded() -> Iterator[Case]:
    left_out = unsettled().keys() | stood_for().keys()
    for entry in RECORDED.values():
        family = OPERATORS[entry.name].family if entry.name in OPERATORS else entry.family
        for dtype, asked in entry.properties.items():
            if is_recorded(entry.name, dtype):
                found = (_case(entry.name, family, each, dtype, recorded=True) for each in asked)
                yield from (each for each in found if each.id not in left_out)


CASES: tuple[Case, ...] = (*_written(), *_recorded())


def cases(property_: str) -> tuple[Case, ...]:
    """Give the cases of one property."""
    return tuple(case for case in CASES if case.property == property_)
