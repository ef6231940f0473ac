"""What each form says of a case, of a cause and of what happened beside the cases, value by value."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pytest_ascend.export import formats, markdown
from pytest_ascend.export.terminal import Line, beside, lines
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Limit, Verdict, Worst
from pytest_ascend.runlog.contents import LeftBehind, Lost, Quarantined, Resumed
from pytest_ascend.system.text import cell, table
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace
from tests.unit.verdict.test_diff import summary

CASE = Case(suite="ops", subject="relu", property="forward", dtype="float32")
VERDICT = Verdict(
    path="output",
    agrees=False,
    standard="error-model@1",
    headline="3 of 9 differ",
    message="worst at [1]",
    metrics={"limit_used": 2.0, "count": 9.0, "unknown": None},
    worst=Worst(index=(1,), actual="2.5", expected="1.5"),
    limit=Limit(name="largest error in ulp", value=4.0),
    pattern="every third",
)
AGREES = {"agrees": True, "headline": "agrees", "metrics": {"limit_used": 0.5}}
RIGHT = Verdict(path="output", standard="error-model@1", **AGREES).as_whole()


def record(outcome: str = "failed", reason: str = "it differs", detail: str = "", **more: Any) -> ResultRecord:
    made = ResultRecord.of(CASE, "suites/ops/test_ops.py::test[relu]", Passed(), duration_s=1.25)
    given = {"verdicts": (RIGHT if outcome == "passed" else VERDICT,), **more}
    return replace(made, outcome=OUTCOMES[outcome](reason=reason, detail=detail), **given)


def test_the_properties_of_a_case_are_what_is_known_of_it() -> None:
    full = record(measurements={"latency_us": 1234567.0, "share": 0.5})
    assert list(formats.properties(full)) == [
        ("ascend_case", "ops/relu/forward/float32"),
        ("ascend_outcome", "failed"),
        ("ascend_reason", "it differs"),
        ("ascend_limit_used", "2"),
        ("ascend_standard", "error-model@1"),
        ("ascend_latency_us", "1.23457e+06"),
        ("ascend_share", "0.5"),
    ]
    bare = record("passed", "", verdicts=())
    assert list(formats.properties(bare)) == [("ascend_case", CASE.id), ("ascend_outcome", "passed")]
    unused = record("passed", "", verdicts=(replace(VERDICT, metrics={"limit_used": 0.0}),))
    assert ("ascend_limit_used", "0") in formats.properties(unused)


def test_an_attachment_has_all_that_was_found() -> None:
    assert formats.attachment(record("passed")) == ""
    said = formats.attachment(record(detail="Traceback")).splitlines()
    assert said[:6] == [
        "ops/relu/forward/float32: failed",
        "it differs",
        "Traceback",
        "output: 3 of 9 differ",
        "every third",
        "worst at [1]",
    ]
    assert "[1]: 2.5, expected 1.5" in said
    assert len([line for line in said if line.endswith((": 2", ": 9"))]) == 2, "figures that are known"
    bare = formats.attachment(record("errored", "", verdicts=())).splitlines()
    assert bare == ["ops/relu/forward/float32: errored"]


def one(*found: ResultRecord) -> Any:
    """Return the summary of a run of these records."""
    cases = [CASE.but(subject=f"relu{place}") for place in range(len(found))]
    made = [each.but(case=case) for case, each in zip(cases, found, strict=True)]
    kept = iter(made)
    return summary(["passed"] * len(made), cases=cases, change=lambda _: next(kept))


def test_a_case_of_junit_has_its_class_name_time_and_finding() -> None:
    found = one(record(detail="Traceback"), record("waived", "known"), record("passed", ""))
    text = formats.junit(found)
    assert text.startswith("<?xml")
    assert text.endswith("</testsuites>\n")
    root = ET.fromstring(text)  # noqa: S314 - we wrote it
    [suite] = root
    assert (root.get("name"), suite.get("name"), suite.get("time")) == ("pytest-ascend", "ops", "3.750")
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["3", "1", "0", "1"]
    failed, waived, passed = suite
    assert (failed.get("classname"), failed.get("name"), failed.get("time")) == (
        "ops.relu0",
        "forward/float32",
        "1.250",
    )
    assert [child.tag for child in failed] == ["properties", "failure"]
    assert failed[1].get("message") == "failed: it differs"
    assert "Traceback" in (failed[1].text or "")
    assert [child.tag for child in waived] == ["properties", "skipped"]
    assert [child.tag for child in passed] == ["properties"]
    assert {each.get("name"): each.get("value") for each in failed[0]}["ascend_outcome"] == "failed"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("passed", None),
        ("failed", "failure"),
        ("fallback", "failure"),
        ("unsupported", "failure"),
        ("flaky", "failure"),
        ("disputed", "skipped"),
        ("errored", "error"),
        ("not-run", "error"),
        ("waived", "skipped"),
        ("not-emulated", "skipped"),
    ],
)
def test_each_outcome_has_a_kind_in_junit_and_counts_so_in_the_relay(outcome: str, kind: str | None) -> None:
    found = summary(["passed", outcome], cases=synthetic.op_cases(2), stack=synthetic.EMULATED)
    root = ET.fromstring(formats.junit(found))  # noqa: S314 - we wrote it
    assert [each.tag for each in root.iter() if each.tag in ("failure", "error", "skipped")] == [kind] * bool(kind)
    relayed = json.loads(formats.relay(found))
    counts = json.loads(relayed["test-results"])
    bad = int(kind in ("failure", "error"))
    assert counts == {"passed": 2 - bool(kind), "failed": bad, "skipped": int(kind == "skipped")}
    assert relayed["conclusion"] == ("failure" if bad else "success")
    assert len(json.loads(relayed["failed-tests-detail"])) == bad


def test_an_attachment_keeps_20000_characters() -> None:
    head = len(formats.attachment(record(reason="x", verdicts=()))) - 1
    fits, longer = (formats.attachment(record(reason="x" * (20_000 - head + more), verdicts=())) for more in (0, 1))
    assert len(fits) == 20_000
    assert set(fits.splitlines()[1]) == {"x"}
    assert set(longer) > set(fits), "it says how much was cut"


def test_junit_has_a_line_for_each_case_and_the_relay_its_limits() -> None:
    assert formats.junit(one(record(), record("passed", ""))).count("\n    <testcase ") == 2
    assert (formats.RELAY_TESTS, formats.RELAY_MESSAGE, formats.RELAY_TRACE) == (1_000, 1_000, 4_000)
    for write in (formats.document, formats.relay):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write(one(record(duration_s=float("nan"))))


@pytest.mark.parametrize("first", "=+-@\t\r")
def test_what_looks_like_a_formula_is_quoted(first: str) -> None:
    assert formats._inert(f"{first}1+cmd") == f"'{first}1+cmd"
    for text in ("", "a=", " -1", "1", "-1", "+2.5e-07", "-.5"):
        assert formats._inert(text) == text


def test_a_table_has_the_columns_and_the_cause_of_each_case() -> None:
    found = one(record(), record("passed", ""))
    head, failed, passed = formats.table(found).splitlines()
    assert head == "outcome,case,suite,subject,property,dtype,cause,limit_used,standard,duration_s,reason"
    [cause] = formats.causes_of(found.results)
    assert failed == (
        f"failed,ops/relu0/forward/float32,ops,relu0,forward,float32,{cause.id},2.0,error-model@1,1.25,it differs"
    )
    assert passed == "passed,ops/relu1/forward/float32,ops,relu1,forward,float32,,0.5,error-model@1,1.25,"


def test_a_document_has_the_run_its_causes_and_its_cases() -> None:
    found = one(record(), record(), record("passed", ""))
    text = formats.document(found)
    data = json.loads(text)
    assert text.endswith("}\n")
    header = found.run.header
    assert [data[name] for name in ("run", "started", "level")] == [header.run_id, header.started, header.level]
    assert data["stack"]["cann"] == header.stack.cann
    assert data["counts"]["failed"] == 2
    causes = formats.causes_of(found.results)
    assert [each["cases"] for each in data["causes"]] == [len(each.cases) for each in causes]
    assert {"id", "outcome", "title", "cases", "of", "example", "finding"} == set(data["causes"][0])
    assert data["causes"][0]["example"] == "ops/relu0/forward/float32"
    assert [row["case"] for row in data["cases"]] == [each.case.id for each in found.results]
    assert [bool(row["cause"]) for row in data["cases"]] == [True, True, False]


@pytest.mark.parametrize(("ran", "of"), [(0, 2), (5, 5)])
def test_a_cause_is_of_the_cases_that_ran_or_of_its_own(ran: int, of: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cause: Any = SimpleNamespace(
        id="i", outcome="failed", title="t", cases=[record()] * 2, ran=ran, representative=record(), finding="f"
    )
    monkeypatch.setattr(formats, "causes_of", lambda _: [cause])
    assert json.loads(formats.document(one(record())))["causes"][0]["of"] == of


@pytest.mark.parametrize(("size", "cut"), [(0, ""), (2, ""), (3, "\u8bef"), (5, "\u8bef"), (6, "\u8bef\u8bef")])
def test_a_text_is_cut_between_characters(size: int, cut: str) -> None:
    assert formats._cut("\u8bef\u8bef", size) == cut


def test_the_relay_gets_each_bad_case_in_full() -> None:
    inputs = json.loads(formats.relay(one(record(detail="Traceback"), record("waived", "known"))))
    [detail] = json.loads(inputs["failed-tests-detail"])
    assert detail == {
        "name": "ops/relu0/forward/float32",
        "classname": "ops.relu0",
        "message": "failed: it differs",
        "stacktrace": formats.attachment(record(detail="Traceback")).replace("relu/", "relu0/"),
        "duration": 1.25,
    }


def cause(outcome: str, count: int, **diagnosis: str) -> Any:
    return SimpleNamespace(
        outcome=outcome, cases=(1,) * count, title="t", finding="f", representative=SimpleNamespace(diagnosis=diagnosis)
    )


@pytest.mark.parametrize(
    ("causes", "category", "confidence", "is_reproduced"),
    [
        ((), "unknown", 0.0, False),
        ((cause("failed", 2), cause("fallback", 1), cause("not-run", 1)), "backend", 0.75, True),
        ((cause("failed", 1), cause("flaky", 2)), "flake", 0.67, False),
        ((cause("errored", 3, kind="hccl"), cause("failed", 1)), "infra", 0.75, True),
        ((cause("errored", 3, kind="other"), cause("failed", 1)), "unknown", 0.75, True),
        ((cause("not-emulated", 1),), "unknown", 1.0, True),
    ],
)
def test_most_cases_say_who_has_to_look(
    causes: tuple[Any, ...], category: str, confidence: float, is_reproduced: bool
) -> None:
    found = formats._triage(causes)
    assert (found["category"], found["confidence"], found["reproduced_on_retry"]) == (
        category, confidence, is_reproduced,
    )  # fmt: skip
    assert found["summary"] == (found["evidence"][0] if causes else "nothing deviates")
    assert len(found["evidence"]) == len(causes)
    assert len(formats._triage((cause("failed", 1),) * 30)["evidence"]) == 10


def test_an_annotation_for_each_of_the_ten_worst_causes() -> None:
    many = [record(reason=f"reason {chr(65 + place)}: 5%, a\nb") for place in range(12)]
    found = formats.github(one(*many)).splitlines()
    assert len(found) == min(10, len(formats.causes_of(one(*many).results))) + 1
    assert found[0].startswith("::error title=failed%3A ")
    assert found[-1].startswith("::notice title=pytest-ascend::Does not conform")
    assert formats._command_data("5%\r") == "5%25\\r"
    assert "(1%2C000 cases)::" in formats.github(one(*[record(reason="a")] * 1000))


def beside_of(*events: Any, **more: Any) -> list[Line]:
    run: Any = SimpleNamespace(events=events)
    return list(beside(run, **more))


def test_nothing_beside_the_cases_is_no_line() -> None:
    assert beside_of(Lost(cases=("x",), reason="r")) == []


@pytest.mark.parametrize(("count", "said"), [(1, "1 warning of"), (2, "2 warnings of"), (1234, "1,234 warnings of")])
def test_warnings_that_are_not_shown_are_counted(count: int, said: str) -> None:
    assert beside_of(warned=count) == [Line(f"{said} torch, torch_npu and the bundled suites; -v lists them")]


def test_what_happened_beside_the_cases_is_told_in_its_order() -> None:
    found = beside_of(
        Quarantined(card="npu:1", reason="wrong\x1b sums"),
        LeftBehind(case="ops/x", card="npu:0", bytes=3 << 19),
        Resumed(at="2026-01-02T03:04:05+00:00", records=1234),
        stopped="by\x1b Ctrl-C",
        output={"[W] first": 1000, "second": 2},
    )
    assert found == [
        Line("1,002 lines of C++, such as: [W] first"),
        Line("npu:1 is quarantined: wrong\\x1b sums", "red"),
        Line("ops/x left 1.5 MiB allocated on npu:0", "yellow"),
        Line("continued: 1,234 cases were recorded before"),
        Line("stopped: by\\x1b Ctrl-C; continue with --ascend-resume", "red"),
    ]


def waived(cause: str) -> ResultRecord:
    return record("waived", "known", waiver={"cause": cause, "kind": "defect"})


def test_known_causes_are_counted_and_three_are_named() -> None:
    def known(*causes: str) -> list[Line]:
        return [line for line in lines(one(*map(waived, causes))) if line.text.startswith("known")]

    assert known("a", "a", "b") == [Line("known: 3 cases: 2 a; 1 b")]
    assert known("a", "b", "c") == [Line("known: 3 cases: 1 a; 1 b; 1 c")]
    assert known("a", "b", "c", "d", "e") == [Line("known: 5 cases: 1 a; 1 b; 1 c; 2 more causes")]
    assert known("a") == [Line("known: 1 case: 1 a")]


def test_what_is_better_than_expected_is_told() -> None:
    found = list(lines(one(record("passed", "better\x1b than"), record("passed", "as well"), record("passed", ""))))
    [line] = [line for line in found if line.text.startswith("better")]
    assert line == Line("better than expected: 2 cases, as better\\x1b than", "yellow")
    assert not [line for line in lines(one(record("passed", ""))) if line.text.startswith(("better", "known"))]


@pytest.mark.parametrize(
    ("outcome", "colour"),
    [("failed", "red"), ("errored", "red"), ("flaky", "red"), ("fallback", "yellow"), ("unsupported", "yellow")],
)
def test_a_cause_has_the_colour_of_its_outcome_and_a_command(outcome: str, colour: str) -> None:
    first, again, *_ = lines(one(record(outcome, "it is so", verdicts=())))
    assert (first.colour, first.bold, again.colour) == (colour, False, "")
    assert first.text.startswith(f"{outcome:<12} ")
    assert first.text.endswith(": it is so")
    assert "cases, such as" not in first.text
    assert again.text == f"{'':<12} again: pytest --ascend 'suites/ops/test_ops.py::test[relu]'"


def test_a_cause_of_some_cases_says_of_how_many() -> None:
    def said(*outcomes: str) -> str:
        same = [record(each, "it is so" if each == "failed" else "") for each in outcomes]
        cases = [CASE.but(property=f"p{place}") for place in range(len(same))]
        kept = iter([each.but(case=case) for case, each in zip(cases, same, strict=True)])
        found = summary(["passed"] * len(same), cases=cases, change=lambda _: next(kept))
        return next(lines(found)).text

    assert ": 4 of 5 cases, such as ops/relu/p0/float32: it is so" in said(*["failed"] * 4, "passed")
    assert ": 4 cases, such as ops/relu/p0/float32: it is so" in said(*["failed"] * 4)


def test_cases_without_a_test_are_no_deviations_to_run_again() -> None:
    found = list(lines(one(record(node_id=""))))
    assert not [line for line in found if "again:" in line.text]


def verdict_line(found: Any) -> Line:
    return [line for line in lines(found) if line.bold][-1]


def test_the_verdict_is_green_only_where_all_conforms() -> None:
    assert verdict_line(one(record("passed", ""))).colour == "green"
    assert verdict_line(one(record())).colour == "red"
    assert verdict_line(one(record("waived", "known", waiver={"cause": "c"}))).colour == "green"
    emulated = summary(["passed"], cases=[CASE], stack=synthetic.EMULATED)
    assert verdict_line(emulated).colour == "yellow"
    assert verdict_line(summary([], cases=[CASE])).colour == "red"


def test_lines_beyond_the_limit_are_counted() -> None:
    many = [record(outcome, "x", verdicts=()) for outcome in ("failed", "errored", "flaky", "fallback")]
    assert not [line for line in lines(one(*many), limit=4) if line.text.startswith("...")]
    more = [line.text for line in lines(one(*many), limit=3) if line.text.startswith("...")]
    assert more == ["... and 1 more causes with 1 case, in the report"]


@pytest.mark.parametrize(
    ("line", "markup"),
    [
        (Line("x"), {"bold": False}),
        (Line("x", "red"), {"red": True, "bold": False}),
        (Line("x", "red", bold=True), {"red": True, "bold": True}),
    ],
)
def test_a_line_has_its_markup(line: Line, markup: dict[str, bool]) -> None:
    assert line.markup == markup


def test_a_cell_is_one_line_in_which_nothing_acts() -> None:
    plain = "error 507899: 1e-5 (of 8), ops/bitwise_or + more!"
    assert cell(plain) == plain
    for active in ("_it_", "#12", "http://x", ":smile:", "@me", "www.a.b", "# x", "- x", "![x](y)", "$x$", "~~x~~"):
        assert "&#" in cell(active)
    assert cell("a|b <i>") == "a&#124;b &#60;i&#62;"
    assert "\n" not in cell("a\nb")
    assert table(("a", "b"), [("1", "x|y")]) == "| a | b |\n|---|---|\n| 1 | x&#124;y |"


def test_a_summary_in_markdown_has_a_row_for_each_cause_up_to_a_limit() -> None:
    many = [record(outcome, "x", verdicts=()) for outcome in ("failed", "errored", "flaky")]
    found = one(*many)
    three, two = (markdown.summary_of(found, limit=limit) for limit in (3, 2))
    assert "more causes" not in three
    assert "and 1 more causes, in the report" in two
    assert three.count("\n| ") - two.count("\n| ") == 1
    assert two.endswith("in the report\n")
    clean = markdown.summary_of(one(record("passed", "")))
    assert "finding" not in clean
    assert "| passed | 1 |" in clean
    assert "| failed |" not in clean
    assert "pytest-ascend | 0.1.0 |" in clean
    assert markdown.ROWS_LIMIT == 30
