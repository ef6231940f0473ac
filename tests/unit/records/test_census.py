"""What a census says, what is believed of one, and how two differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_ascend.records.census import ABSENT, KINDS, ON_NPU, OPERATORS_LIMIT, Census, Change, compare


def census(**operators: str) -> Census:
    return Census(
        torch="2.13.0",
        torch_npu="2.13.0",
        torch_npu_commit="c0ffee1",
        operators={f"aten::{k}": v for k, v in operators.items()},
    )


def said(**changes: Any) -> dict[str, Any]:
    return {**census(add="native").to_dict(), **changes}


def test_what_is_written_is_read_back() -> None:
    assert Census.from_dict(census(add="native", sin="fallback").to_dict()) == census(add="native", sin="fallback")


def test_keys_of_later_versions_are_left_alone() -> None:
    assert Census.from_dict(said(more=1)) == census(add="native")


def test_operators_are_counted_by_namespace_and_kind() -> None:
    counts = Census.from_dict(said(operators={"aten::a": "native", "npu::b": "native", "npu::c": "native"})).counts()
    assert (counts["aten", "native"], counts["npu", "native"], counts["npu", "fallback"]) == (1, 2, 0)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        said(type="census-diff"),
        said(schema=2),
        said(schema=True),
        said(schema="1"),
        said(stack=None),
        said(stack={"torch": "2.13.0"}),
        said(stack={**census().stack, "torch": "\x1b[31m2.13"}),
        said(stack={**census().stack, "torch": "1" * 101}),
        said(stack={**census().stack, "torch_npu": 2}),
        said(operators=None),
        said(operators={}),
        said(operators=["aten::add"]),
        said(operators={f"aten::{number}": "native" for number in range(OPERATORS_LIMIT + 1)}),
        said(operators={"add": "native"}),
        said(operators={"aten::add\n": "native"}),
        said(operators={"aten::[red]": "native"}),
        said(operators={"aten::" + "a" * 201: "native"}),
        said(operators={"aten::add": "absent"}),
        said(operators={"aten::add": ["native"]}),
        said(operators={"aten::add": 1}),
    ],
    ids=lambda data: repr(data)[-60:],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"census|schema|stack|operator|expected"):
        Census.from_dict(data)


@pytest.mark.parametrize("after", [*sorted(set(KINDS) - ON_NPU), ABSENT])
@pytest.mark.parametrize("before", sorted(ON_NPU))
def test_what_leaves_the_npu_is_lost_and_what_comes_to_it_gained(before: str, after: str) -> None:
    with_it, without = (
        census(other="native", add=before),
        census(other="native", **({} if after == ABSENT else {"add": after})),
    )
    there, back = compare(with_it, without), compare(without, with_it)
    assert there["lost"] == {"aten::add": Change(before, after)}
    assert back["gained"] == {"aten::add": Change(after, before)}
    assert not any((there["gained"], there["changed"], back["lost"], back["changed"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("native", "composite-explicit"),
        ("composite-implicit", "native"),
        ("fallback", "missing"),
        ("missing", "fallback"),
    ],
)
def test_another_kind_on_the_same_side_is_a_change(before: str, after: str) -> None:
    difference = compare(census(add=before), census(add=after))
    assert difference["changed"] == {"aten::add": Change(before, after)}
    assert not any((difference["gained"], difference["lost"]))


def test_a_new_operator_that_falls_back_is_no_gain() -> None:
    difference = compare(census(add="native"), census(add="native", sin="fallback"))
    assert difference["changed"] == {"aten::sin": Change(ABSENT, "fallback")}
    assert not difference["gained"]


def test_the_same_census_twice_differs_in_nothing() -> None:
    same = compare(census(add="native", sin="fallback"), census(add="native", sin="fallback"))
    assert not any((same["gained"], same["lost"], same["changed"]))


def test_a_difference_is_sorted() -> None:
    found = compare(census(b="native", a="native"), census(c="native", b="missing", a="missing"))
    assert list(found["lost"]) == ["aten::a", "aten::b"]
    assert found["gained"] == {"aten::c": ("absent", "native")}


def test_what_torch_itself_removed_or_added_is_not_torch_npus_doing() -> None:
    old = census(gone="native", kept="native")
    new = replace(census(kept="native", new="fallback", mine="native"), torch="2.99.0")
    found = compare(old, new)
    assert found["removed"] == {"aten::gone": Change("native", ABSENT)}
    assert found["added"] == {"aten::new": Change(ABSENT, "fallback")}
    assert found["gained"] == {"aten::mine": Change(ABSENT, "native")}
    assert not found["lost"]


def test_an_operator_of_torch_npu_that_is_gone_is_lost_with_any_torch_and_comes_first() -> None:
    old = replace(census(add="native"), operators={"aten::add": "native", "npu::rope": "native"})
    new = replace(census(add="fallback"), torch="2.99.0")
    assert list(compare(old, new)["lost"]) == ["npu::rope", "aten::add"]
