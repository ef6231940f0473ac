"""Cases, outcomes, verdicts, times and texts: each value that the rest of the package relies on."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.errors import UsageError
from pytest_ascend.records import LEVELS
from pytest_ascend.records import outcome as outcomes
from pytest_ascend.records.bounds import Metric, Nested, Number, Plain, Seconds, moment, one_of
from pytest_ascend.records.case import EQUAL_BITS, Case, Stack
from pytest_ascend.records.census import ABSENT, KINDS, ON_NPU, OPERATORS_LIMIT, PARTS, Census, compare
from pytest_ascend.records.outcome import OUTCOMES, Failed, Passed
from pytest_ascend.records.record import SERIES_LIMIT, SERIES_POINTS_LIMIT, ResultRecord, Series
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES, Verdict, as_expected_of, named_in
from pytest_ascend.system.text import (
    UNITS,
    one_line,
    parse_duration,
    parse_share,
    parse_size,
    visible,
)

CASE = Case(suite="ops", subject="relu", property="forward", dtype="float32", family="f", level="standard")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1h", 3600), ("0.5h", 1800), ("1e3", 1000), ("31622399", 31622399)],
)
def test_a_duration_is_a_number_with_a_unit_or_of_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "h", "0", "-1", "31622400", "1e999", "nan", "inf", "1d", "1 hour", "\u0663", "1_"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 5 % ", 0.05), ("99.5%", 0.995), ("0.999", 0.999), ("1%", 0.01)]
)
def test_a_share_is_in_percent_or_below_one(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    "text", ["", "0", "0%", "1", "100%", "150%", "5", "-5%", "5%%", "1234%", "\u0665%", "5 per cent"]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no share"):
        parse_share(text)


@pytest.mark.parametrize(("unit", "power"), [("K", 1), ("M", 2), ("G", 3), ("T", 4)])
def test_units_of_memory_are_powers_of_1024_and_with_a_b_of_1000(unit: str, power: int) -> None:
    assert parse_size(f"1{unit}") == parse_size(f"1{unit}iB") == parse_size(f"1 {unit.lower()}ib") == 1024**power
    assert parse_size(f"1{unit}B") == 1000**power
    assert parse_size("3") == parse_size("3B") == parse_size(" 3 b ") == 3
    assert len(UNITS) == 14


@pytest.mark.parametrize("text", ["0", "0.4", "K", "1X", "-1", "1.", "1" * 19, "1 K B", "\u0661"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a memory size"):
        parse_size(text)


@given(st.text())
def test_text_is_made_visible_and_otherwise_left(text: str) -> None:
    shown, line = visible(text), one_line(text)
    assert line == shown.replace("\n", "\\n").replace("\t", "\\t")
    assert "\x1b" not in shown
    if all(each.isprintable() or each in "\n\t" for each in text):
        assert shown == text


def test_what_is_unseen_is_written_as_python_does() -> None:
    assert visible("a\x1b\u202e\ud800\n\t") == "a\\x1b\\u202e\\ud800\n\t"
    assert one_line("a\x00\n\tb") == "a\\x00\\n\\tb"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        ("2000-01-01T00:00:00+08:00", datetime(2000, 1, 1, tzinfo=timezone(timedelta(hours=8)))),
        ("2999-12-31T23:59:59+00:00", datetime(2999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)),
    ],
)
def test_a_time_has_its_offset(text: str, at: datetime) -> None:
    assert moment(text) == at


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-01-02T03:04:05", "with its offset"),
        ("now", "with its offset"),
        ("1999-12-31T23:59:59+00:00", "is no time of a run"),
        ("3000-01-01T00:00:00+00:00", "is no time of a run"),
    ],
)
def test_what_is_no_time_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        moment(text)


def is_accepted(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (Seconds, [0, 0.0, 1.5, sys.float_info.max], [-0.1, float("inf"), "1"]),
        (Number, [1, 1.5, -1], ["1", None]),
        (Metric, [1, None, float("nan")], ["1"]),
        (Plain, ["a", 1, 1.5, True, None], [[], {}]),
        (Nested, [1, [1, [2]], {"a": {"b": 1}}, {"a": [1]}], [[[[1]]], {"a": {"b": {"c": 1}}}]),
        (Series, [[], [1, 2.5], [0] * SERIES_POINTS_LIMIT], [[0] * (SERIES_POINTS_LIMIT + 1), ["a"]]),
    ],
)
def test_a_field_takes_what_it_may_hold(kind: Any, right: list[Any], wrong: list[Any]) -> None:
    assert all(is_accepted(each, kind) for each in right)
    assert not any(is_accepted(each, kind) for each in wrong)


def test_one_of_some_names_is_exactly_one() -> None:
    kind = Annotated[str, one_of("a", "bc")]
    assert [is_accepted(each, kind) for each in ("a", "bc", "ab", "b", "", "a\n", "xa")] == [True] * 2 + [False] * 5


def test_an_id_is_of_the_parts_that_there_are() -> None:
    assert CASE.id == "ops/relu/forward/float32"
    assert CASE.but(dtype="").id == "ops/relu/forward"
    assert CASE.but(subject="gelu") == Case(
        suite="ops", subject="gelu", property="forward", dtype="float32", family="f", level="standard"
    )
    with pytest.raises(ValueError, match="expected 'ops/relu/forward'"):
        Case(id="x", suite="ops", subject="relu", property="forward")
    bare = Case(suite="ops", subject="relu", property="forward")
    assert (bare.dtype, bare.family, bare.level) == ("", "", "smoke")


@pytest.mark.parametrize("at", LEVELS)
def test_a_run_has_the_cases_of_its_level_and_of_lower_ones(at: str) -> None:
    found = [level for level in LEVELS if CASE.but(level=level).is_in(at)]
    assert found == list(LEVELS[: LEVELS.index(at) + 1])


def test_the_properties_of_equal_bits() -> None:
    assert EQUAL_BITS == ("repeat", "determinism")


def test_an_unknown_version_is_empty() -> None:
    stack = Stack(device="npu", emulated=False)
    assert {getattr(stack, each.name) for each in fields(stack)} == {"npu", False, ""}


def test_outcomes_are_known_by_name_and_few_conform() -> None:
    kinds = [each for each in vars(outcomes).values() if isinstance(each, type) and issubclass(each, outcomes.Outcome)]
    assert {name: kind.name for name, kind in OUTCOMES.items()} == {name: name for name in OUTCOMES}
    assert set(kinds) - {outcomes.Outcome} == set(OUTCOMES.values())
    assert [name for name, kind in OUTCOMES.items() if kind.conforms] == ["passed", "waived", "disputed"]
    assert (Passed().reason, Passed().detail) == ("", "")


def test_a_record_keeps_its_outcome() -> None:
    made = ResultRecord.of(CASE, "n", Failed(reason="r", detail="d"), duration_s=2.0)
    assert (made.outcome, made.duration_s, made.node_id) == (Failed(reason="r", detail="d"), 2.0, "n")
    assert type(made.outcome) is Failed
    again = made.but(Passed(), node_id="m")
    assert (again.outcome, again.reason, again.node_id, again.duration_s) == (Passed(), "", "m", 2.0)
    assert made.but(node_id="m").outcome == made.outcome


def test_an_empty_record_says_what_is_always_said() -> None:
    made = msgspec.to_builtins(ResultRecord.of(CASE, "n", Passed()))
    assert set(made) == {
        *("type", "case", "node_id", "outcome", "reason", "detail", "verdicts", "measurements", "fallbacks"),
        "duration_s",
    }
    assert (made["type"], made["outcome"], made["duration_s"], made["measurements"]) == ("record", "passed", 0.0, {})


@pytest.mark.parametrize(("count", "fits"), [(SERIES_LIMIT, True), (SERIES_LIMIT + 1, False)])
def test_a_case_has_a_bounded_number_of_series(count: int, fits: bool) -> None:
    made = msgspec.to_builtins(ResultRecord.of(CASE, "n", Passed()))
    made["series"] = {str(each): [1] for each in range(count)}
    assert is_accepted(made, ResultRecord) is fits


LEAF = Verdict(path="output", agrees=True, standard="s", headline="agrees", metrics={"a": 1, "b": None})


def test_a_verdict_has_leaves_of_one_level() -> None:
    whole = LEAF.as_whole()
    assert whole.leaves == (LEAF,)
    assert replace(whole, leaves=()) == LEAF
    with pytest.raises(ValueError, match="a leaf has leaves of its own"):
        Verdict(path="", agrees=True, standard="s", headline="h", leaves=(LEAF, whole))


def test_figures_are_computed_once_in_full() -> None:
    class Later:
        def __float__(self) -> float:
            return 2.5

    later = Verdict(path="", agrees=True, standard="s", headline="h", metrics={"a": Later(), "b": None})  # type: ignore[dict-item]
    found = later.as_whole().in_full()
    assert found.metrics == found.leaves[0].metrics == {"a": 2.5, "b": None}


def test_what_a_chip_does_is_told_in_words_that_are_read_again() -> None:
    every = (SATURATES, FLUSHES, HALVES)
    assert as_expected_of(every) == f"as expected of a chip with {SATURATES}, {FLUSHES}, {HALVES}"
    assert named_in(f"{as_expected_of(every)}\nmore") == set(every)
    assert named_in("") == frozenset()


def census(torch: str = "2.13.0", **operators: str) -> Census:
    named = {name.replace("__", "::"): kind for name, kind in operators.items()}
    return Census(torch=torch, torch_npu="2.13.0", torch_npu_commit="c", operators=named)


def test_namespaces_are_counted_in_the_order_of_the_kinds() -> None:
    found = census(npu__a="native", aten__b="missing", aten__c="native", aten__d="native").by_namespace()
    assert found == {"aten": {"native": 2, "missing": 1}, "npu": {"native": 1}}
    assert list(found) == ["aten", "npu"]
    assert list(found["aten"]) == ["native", "missing"]


def test_kinds_are_on_the_npu_or_not() -> None:
    assert set(KINDS) - ON_NPU == {"fallback", "missing"}
    assert ABSENT not in KINDS


def test_a_census_says_of_what_it_is() -> None:
    made = census(aten__a="native")
    assert made.stack == {"torch": "2.13.0", "torch_npu": "2.13.0", "torch_npu_commit": "c"}
    assert made.to_dict() == {"schema": 1, "type": "census", "stack": made.stack, "operators": {"aten::a": "native"}}
    assert tuple(compare(made, census(aten__a="missing"))) == PARTS


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a" * 60 + "::x", True), ("a" * 61 + "::x", False), ("a::" + "x" * 200, True), ("::x", False), ("a::", False)],
)
def test_names_of_operators_are_bounded(name: str, fits: bool) -> None:
    data = {**census().to_dict(), "operators": {name: "native"}}
    if fits:
        assert Census.from_dict(data).operators == {name: "native"}
    else:
        with pytest.raises(ValueError, match="is no name of an operator"):
            Census.from_dict(data)


def test_a_census_has_a_bounded_number_of_operators() -> None:
    most = {f"aten::{number}": "native" for number in range(OPERATORS_LIMIT)}
    assert len(Census.from_dict({**census().to_dict(), "operators": most}).operators) == OPERATORS_LIMIT == 100_000


@pytest.mark.parametrize("version", ["", "1" * 100, "2.1+cpu_x-y"])
def test_versions_of_a_census_may_be_unknown(version: str) -> None:
    data = {**census(aten__a="native").to_dict(), "stack": {**census().stack, "torch": version}}
    assert Census.from_dict(data).torch == version


def test_a_kernel_of_an_operator_that_torch_added_is_gained_and_none_is_lost_that_torch_removed() -> None:
    found = compare(census(aten__old="fallback"), census("2.14.0", aten__new="composite-implicit", npu__own="fallback"))
    assert [list(found[part]) for part in ("removed", "added", "changed")] == [
        ["aten::old"],
        ["aten::new"],
        ["npu::own"],
    ]
