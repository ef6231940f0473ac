"""The catalogue: every operator, and the cases that come of it. Loading it makes no tensor and reads no golden."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.case import Case

from .corpus.index import Entry
from .corpus.index import load as load_recorded
from .corpus.repeating import NOT_REPEATED, REPEAT
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
from .properties import PROPERTIES, applies, level, level_of_recorded

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


def _case(name: str, family: str, property_: str, dtype: str, shown: str) -> Case:
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
            yield from (_case(operator.name, operator.family, each, dtype, level(each, dtype)) for each in asked)


def _recorded() -> Iterator[Case]:
    for entry in RECORDED.values():
        family = OPERATORS[entry.name].family if entry.name in OPERATORS else entry.family
        for dtype in (each for each in entry.properties if is_recorded(entry.name, each)):
            first = entry.name not in OPERATORS and dtype == entry.first_dtype
            for property_ in _properties(entry, dtype):
                shown = level_of_recorded(property_, dtype, first=first)
                yield _case(entry.name, family, property_, dtype, shown)


def _properties(entry: Entry, dtype: str) -> tuple[str, ...]:
    """Return the properties of a recorded operator; it is to repeat itself only where its results are recorded."""
    recorded = entry.properties[dtype]
    repeats = "forward" in recorded and entry.name not in NOT_REPEATED
    return (*recorded, REPEAT) if repeats else recorded


CASES: tuple[Case, ...] = (*_written(), *_recorded())


def cases(property_: str) -> tuple[Case, ...]:
    """Return the cases of one property."""
    return tuple(case for case in CASES if case.property == property_)
