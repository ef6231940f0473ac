"""Where the words of a run change: limits of texts, thresholds of figures, columns."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Limit, Worst
from pytest_ascend.system import figures
from pytest_ascend.verdict import columns, evidence
from tests.unit.runlog.synthetic import replace

from .made import CASE, record, verdict

# --- texts ---


def test_a_line_has_at_most_400_characters_and_says_where_it_is_cut() -> None:
    assert evidence.line("x" * 400) == "x" * 400
    assert evidence.line("x" * 401) == "x" * 400 + "…"
    assert evidence.line("a\nb") == r"a\nb"


def test_a_text_keeps_both_ends() -> None:
    assert evidence.text("x" * 10, 10) == "x" * 10
    cut = evidence.text("abcdefghijk", 10)
    assert cut == "abcde\n… 1 characters left out; the log has them …\nghijk"
    assert evidence.text("x" * 6000) == "x" * 6000
    assert "left out" in evidence.text("x" * 6001)


def test_a_program_is_shown_whole_or_not_at_all() -> None:
    assert evidence.program(record(snippet="x" * 20_000)) == "x" * 20_000
    assert evidence.program(record(snippet="x" * 20_001)) == ""


def test_the_finding_is_the_reason_or_the_first_comparison_that_disagrees() -> None:
    wrong, right = verdict(False, headline="wrong"), verdict(True, headline="right")
    assert evidence.finding(record(reason="why", verdicts=(wrong,))) == "why"
    assert evidence.finding(record("passed", verdicts=(right, wrong))) == "wrong"
    assert evidence.finding(record("passed", verdicts=(right,))) == ""
    assert evidence.loosened(record("passed", verdicts=(right, verdict(waiver="as agreed")))) == "as agreed"
    assert evidence.loosened(record("passed", verdicts=(right,))) == ""


@pytest.mark.parametrize(
    ("fields", "pairs"),
    [
        ({}, []),
        (
            {"limit": Limit(name="error_us", value=4.0), "headline": "off: 12.5, allowed 4"},
            [("by", "error"), ("found", "12.5"), ("allowed", "4 µs")],
        ),
        (
            {"limit": Limit(name="error", value=4.0), "metrics": {"limit_used": 0.5}},
            [("by", "error"), ("found", "2"), ("allowed", "4")],
        ),
        (
            {"limit": Limit(name="error", value=0.0), "metrics": {"limit_used": 0.5}},
            [("by", "error"), ("allowed", "0")],
        ),
        ({"limit": Limit(name="error", value=4.0)}, [("by", "error"), ("allowed", "4")]),
    ],
)
def test_the_limit_that_decided(fields: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    assert list(evidence.decided(verdict(**fields))) == pairs


def test_worst_elements_and_the_map_of_errors_are_bounded() -> None:
    worst = tuple(Worst(index=(1, place), actual="a\n", expected="b") for place in range(9))
    assert evidence.elements(verdict(worst_elements=worst, worst=worst[8])) == [
        [f"[1, {place}]", r"a\n", "b"] for place in range(8)
    ]
    assert evidence.elements(verdict(worst=worst[8])) == [["[1, 8]", r"a\n", "b"]]
    assert evidence.elements(verdict()) == []
    rows = evidence.where(verdict(where=("0129x", *["1" * 65] * 64)))
    assert rows[0] == "01290"
    assert (len(rows), len(rows[1])) == (64, 64)


def test_measurements_are_in_words() -> None:
    found = evidence.measures(record("passed", measurements={"latency_us": 1234.5, "rounds": 3}))
    assert found == (("latency", "1,234 µs"), ("rounds", "3"))


@pytest.mark.parametrize(
    ("outcome", "waiver", "detail", "below"),
    [
        ("failed", None, "", "failed"),
        ("waived", {"outcome": "fallback"}, "failed: x", "fallback"),
        ("disputed", {"outcome": "failed"}, "", "failed"),
        ("waived", {}, "failed: off by one", "failed"),
        ("waived", {"outcome": "nothing known"}, "", "waived"),
        ("waived", None, "", "waived"),
    ],
)
def test_the_outcome_below_a_waiver(outcome: str, waiver: Any, detail: str, below: str) -> None:
    assert evidence.below(record(outcome, waiver=waiver, detail=detail)) == below


def test_the_largest_share_of_a_limit_counts() -> None:
    some = [verdict(metrics={"limit_used": share}) for share in (0.1, 0.7, 0.3)]
    assert evidence.limit_used(record(verdicts=(*some, verdict()))) == 0.7
    assert evidence.limit_used(record(verdicts=(verdict(metrics={"limit_used": None}),))) is None
    assert evidence.limit_used(record()) is None


def header(options: Any = None, *, emulated: bool = False, level: str = "smoke") -> Any:
    return SimpleNamespace(options=options or {}, stack=SimpleNamespace(emulated=emulated), level=level)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (header(), []),
        (header(emulated=True), ["--ascend-device=emulated"]),
        (header(level="full"), ["--ascend-level=full"]),
        (header(level="standard"), []),
        (header({"arguments": ["--a", 3]}, emulated=True), ["--a", "3"]),
        (header({"arguments": "no list", "standard": "s@1"}), ["--ascend-standard=s@1"]),
        (
            header({"model": "m:make", "model_input": "1,2", "emulated_numerics": "exact", "faults": ["a", "b"]}),
            [
                "--ascend-model=m:make",
                "--ascend-model=input=1,2",
                "--ascend-emulate=fault=a",
                "--ascend-emulate=fault=b",
            ],
        ),
        (header({"emulated_numerics": "chip:1", "faults": None}), ["--ascend-emulate=numerics=chip:1"]),
    ],
)
def test_the_options_that_decide_what_a_case_computes(given: Any, arguments: list[str]) -> None:
    assert evidence.arguments(given) == arguments
    assert evidence.again(given, "a b.py::t[x]").startswith("pytest --ascend")
    assert evidence.again(given, "a b.py::t[x]").endswith("'a b.py::t[x]'")


# --- figures ---


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(10.0, "1,000 %"), (9.99, "999 %"), (0.1, "10 %"), (0.0999, "10.0 %"), (0.001, "0.1 %"), (0.00099, "< 0.1 %"),
     (999_999.0, "99,999,900 %"), (1e6, "beyond measure")],
)  # fmt: skip
def test_shares_of_a_limit_at_their_thresholds(fraction: float, text: str) -> None:
    assert figures.used(fraction) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x_bytes", 1023, "1,023 B"),
        ("x_bytes", 1024, "1 KiB"),
        ("x_bytes", 1024**2, "1 MiB"),
        ("x_bytes", 1024**4 * 5000, "5e+03 TiB"),
        ("x", 999.5, "999.5"),
        ("x", 1000.4, "1,000"),
        ("x", -1000.4, "-1,000"),
        ("x", 1e12, "1,000,000,000,000"),
        ("x", 1.5e15, "1.5e+15"),
    ],
)
def test_quantities_at_their_thresholds(name: str, value: float, text: str) -> None:
    assert figures.quantity(name, value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(999.0, "999 µs"), (1000.0, "1 ms"), (999_000.0, "999 ms"), (1e6, "1 s"), (-2000.0, "-2 ms")]
)
def test_brief_times_at_their_thresholds(value: float, text: str) -> None:
    assert figures.brief("latency_us", value) == text
    assert figures.brief("x_bytes", 2048) == "2 KiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00999, "10 ms"), (0.01, "10 ms"), (0.999, "999 ms"), (1.0, "1.0 s"), (59.9, "59.9 s"), (60, "1 min 0 s"),
     (3599.6, "1 h 0 min"), (3600, "1 h 0 min"), (119, "1 min 59 s")],
)  # fmt: skip
def test_durations_at_their_thresholds(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


def test_names_are_sorted_as_people_do() -> None:
    assert sorted(["b", "É", "a", "e", "B", "E"], key=figures.sort_key) == ["a", "B", "b", "E", "e", "É"]


# --- columns ---


def shown(name: str, given: ResultRecord, cause: str = "") -> tuple[Any, str]:
    (column,) = (each for each in columns.COLUMNS if each.name == name)
    return column.value(given, cause), column.shown(given, cause)


def test_every_column_of_a_case() -> None:
    used = verdict(metrics={"limit_used": 0.5}, standard="s@1")
    given = record("passed", verdicts=(used, verdict(standard="t@1"), used), duration_s=2.5)
    assert shown("limit_used", given) == (0.5, "50 %")
    assert shown("limit_used", record()) == ("", "")
    assert shown("limit_used", record(verdicts=(verdict(metrics={"limit_used": math.inf}),))) == (
        "inf",
        "beyond measure",
    )
    assert shown("standard", given) == ("s@1, t@1",) * 2
    assert shown("duration_s", given) == (2.5, "2.5 s")
    assert shown("duration_s", replace(given, node_id="")) == (2.5, "")
    assert shown("cause", given, "failed:x") == ("failed:x",) * 2
    assert [shown(name, given)[0] for name in ("outcome", "case", "suite", "subject", "property", "dtype")] == [
        "passed", CASE.id, "ops", "relu", "forward", "float32",
    ]  # fmt: skip
    assert shown("reason", record(reason="why")) == ("why",) * 2
    assert shown("reason", record("passed", verdicts=(verdict(waiver="agreed"),))) == ("agreed",) * 2


def test_each_place_has_its_columns() -> None:
    assert [each.name for each in columns.columns_of("page")] == [
        "outcome",
        "case",
        "limit_used",
        "duration_s",
        "reason",
    ]
    assert [each.name for each in columns.columns_of("pytest-html")] == ["outcome", "limit_used", "standard"]
    assert {each.name for each in columns.COLUMNS if each.is_number} == {"limit_used", "duration_s"}


def test_results_are_counted_worst_first() -> None:
    some = [record("passed"), record("failed"), record("passed"), record("errored")]
    assert str(columns.tally(some)) == "1 failed, 1 errored, 2 passed"
    assert str(columns.tally([])) == ""


def test_abbreviations_are_lengthened_and_then_numbered() -> None:
    assert columns.abbreviations(["forward", "fast", "far", "final two words more"]) == {
        "forward": "F", "fast": "Fa", "far": "F2", "final two words more": "FTW",
    }  # fmt: skip
    assert columns.abbreviations(["", "_"]) == {"": "?", "_": "?2"}
