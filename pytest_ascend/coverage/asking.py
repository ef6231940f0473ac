"""Which cases need not be asked, as torch_npu has no kernel for their operator, whatever their dtype and layout.

The expectation that says so names the operators and the one case that is executed all the same. It is held against the
dispatcher of the torch_npu that is installed, at each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date

from pytest_ascend.coverage.expectations import Expectation, Expectations
from pytest_ascend.records.case import Case
from pytest_ascend.records.census import FALLBACK, ON_NPU
from pytest_ascend.records.left import Left

#: Gives the kind of an operator (see :mod:`pytest_ascend.records.census`), "" for one that this torch does not have.
Dispatcher = Callable[[str], str]


def held_against(dispatcher: Dispatcher, expectations: Expectations, day: date, *, asks_all: bool) -> Expectations:
    """Tell by the dispatcher which operators need to be asked once only, and which entries are outlived.

    An entry that is over on ``day`` excuses nothing, and neither does one of whose operators this torch has none.
    """
    return Expectations(tuple(_held(each, dispatcher, day, asks_all=asks_all) for each in expectations.entries))


def _held(entry: Expectation, dispatcher: Dispatcher, day: date, *, asks_all: bool) -> Expectation:
    kinds = {name: kind for name in entry.operators if (kind := dispatcher(name))}
    gained = tuple(name for name, kind in kinds.items() if kind in ON_NPU)
    is_left = set(kinds.values()) == {FALLBACK}
    return replace(entry, gained=gained, asks_once=is_left and not asks_all and day <= entry.expires)


def left_out(expectations: Expectations, cases: Iterable[Case]) -> tuple[Left, ...]:
    """Return the cases among ``cases`` that need not be asked, each with the one of ``cases`` that stands for it."""
    known = {case.id: case for case in cases}
    asked_once = (each for each in expectations.entries if each.asks_once and each.asked in known)
    standing = {each.asked: each for each in asked_once if expectations.find(each.asked) is each}
    others: dict[str, list[Case]] = {}
    beginnings = tuple(each.beginning for each in standing.values())
    for case in known.values():
        entry = expectations.find(case.id) if case.id.startswith(beginnings) else None
        if entry and entry.asked != case.id and standing.get(entry.asked) is entry:
            others.setdefault(entry.asked, []).append(case)
    return tuple(
        Left(asked=asked, operators=standing[asked].operators, reason=standing[asked].reason, cases=tuple(found))
        for asked, found in others.items()
    )
