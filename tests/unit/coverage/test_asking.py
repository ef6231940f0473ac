"""What the dispatcher says decides whether an operator is asked once or in all its cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

import pytest

from pytest_ascend.coverage.asking import held_against, left_out
from pytest_ascend.coverage.expectations import Expectation, Expectations
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Failed, Fallback, Passed

ENTRY = Expectation(
    cases="ops/entr/*",
    outcome="fallback",
    reason="no kernel",
    source="seen",
    expires=date(2030, 1, 31),
    versions={},
    file="mine.json",
    operators=("aten::entr", "aten::entr.out"),
    asked="ops/entr/forward/float32",
)
STATE = replace(ENTRY, cases="ops/entr/state/*", outcome="failed", operators=(), asked="")
CASES = tuple(
    Case(suite="ops", subject=subject, property=name, dtype="float32")
    for subject in ("entr", "relu")
    for name in ("forward", "out", "state")
)
ASKED, OUT, *OTHERS = CASES
LACKING = {"aten::entr": "fallback", "aten::entr.out": "fallback"}
DAY = date(2030, 1, 31)


def held(
    kinds: Mapping[str, str] = LACKING, *entries: Expectation, day: date = DAY, asks_all: bool = False
) -> Expectations:
    """Hold entries against a dispatcher that knows ``kinds`` of operators."""
    given = Expectations(entries or (ENTRY,))
    return held_against(lambda name: kinds.get(name, ""), given, day, asks_all=asks_all)


def gone(expectations: Expectations, cases: tuple[Case, ...] = CASES) -> list[Case]:
    return [case for each in left_out(expectations, cases) for case in each.cases]


def test_an_operator_without_a_kernel_is_asked_once() -> None:
    [group] = left_out(held(), CASES[:2])
    assert (group.asked, group.operators, group.cases) == (ASKED.id, ENTRY.operators, (OUT,))


def test_what_another_entry_is_about_is_asked() -> None:
    assert gone(held(LACKING, ENTRY, STATE)) == [OUT]


def test_a_case_that_another_entry_is_about_stands_for_none() -> None:
    assert gone(held(LACKING, ENTRY, replace(STATE, cases=ASKED.id))) == []


def test_an_entry_whose_case_is_a_later_entry_s_leaves_nothing_out() -> None:
    wider = replace(ENTRY, cases="ops/*")
    assert gone(held(LACKING, wider, ENTRY)) == [OUT, CASES[2]]


def test_where_the_one_case_is_not_selected_the_others_are_asked() -> None:
    assert gone(held(), (OUT, *OTHERS)) == []


@pytest.mark.parametrize(
    "kinds",
    [
        {**LACKING, "aten::entr.out": "native"},
        {**LACKING, "aten::entr.out": "composite-explicit"},
        {**LACKING, "aten::entr.out": "missing"},
        {},
    ],
)
def test_any_other_state_of_any_operator_has_all_of_them_asked(kinds: Mapping[str, str]) -> None:
    assert gone(held(kinds)) == []


def test_an_operator_that_an_older_torch_does_not_have_does_not_matter() -> None:
    assert gone(held({"aten::entr": "fallback"}), CASES[:2]) == [OUT]


def test_everything_is_asked_on_demand_and_when_the_entry_is_over() -> None:
    assert gone(held(asks_all=True)) == []
    assert gone(held(day=date(2030, 2, 1))) == []


def test_without_a_dispatcher_everything_is_asked() -> None:
    assert gone(Expectations((ENTRY,))) == []


@pytest.mark.parametrize("kind", ["native", "composite-implicit", "other-layout"])
def test_an_operator_that_gained_a_kernel_outlives_its_entry(kind: str) -> None:
    found = held({**LACKING, "aten::entr.out": kind}, asks_all=True)
    [entry] = found.entries
    said = "outlived is the entry ops/entr/* in mine.json: torch_npu has a kernel for aten::entr.out"
    assert entry.outlived == said
    assert said in found.said()[0]
    for case, came in ((OUT, Passed()), (ASKED, Fallback(reason="computed on the CPU: aten::entr"))):
        expectation = found.find(case.id)
        assert expectation
        judged = expectation.judge(came, DAY)
        assert not judged.conforms
        assert said in judged.reason
    assert entry.judge(Failed(reason="wrong"), DAY).name == "failed"


@pytest.mark.parametrize("kind", ["fallback", "missing", ""])
def test_nothing_else_outlives_an_entry(kind: str) -> None:
    [entry] = held({**LACKING, "aten::entr.out": kind}).entries
    assert not entry.outlived
    assert entry.judge(Fallback(reason="computed on the CPU: aten::entr"), DAY).name == "waived"
