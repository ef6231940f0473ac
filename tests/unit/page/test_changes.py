"""A comparison as people and machines read it."""

import json

import pytest
from click.testing import CliRunner

from pytest_ascend.page import changes
from pytest_ascend.page.commands import report
from pytest_ascend.page.html import render_diff
from pytest_ascend.runlog import codec
from pytest_ascend.verdict.diff import compare
from tests.unit.runlog import synthetic
from tests.unit.verdict.test_diff import CASES, PASSED, summary, used

from .test_html import Reader


def diff():
    return compare(summary(PASSED, change=used(0.1)), summary(["failed", "passed", "passed"], change=used(0.4)))


def test_the_sentence_has_the_worst_first():
    said = "Since Ascend910B1 · CANN 9.0.0 · torch_npu 2.13.0: 1 regression, 2 errors grew, 1 case run in only one."
    assert str(changes.sentence(diff())) == said


def test_the_first_line_answers_whether_the_later_stack_may_replace_the_earlier_one():
    same = compare(summary(PASSED), summary(PASSED))
    assert next(changes.lines(same)).text.startswith("Yes, the later stack may replace the earlier one")
    worse = next(changes.lines(diff())).text
    assert worse.startswith("No, the later stack may not replace the earlier one: 1 regression (1 × ")
    less = compare(summary(PASSED, change=used(0.1)), summary(PASSED[:3], change=used(0.1)))
    assert next(changes.lines(less)).text.startswith("Cannot tell whether")
    assert next(changes.lines(less)).text.endswith("1 case that ran before did not run.")


def test_nothing_changed_is_said_too():
    same = compare(summary(PASSED), summary(PASSED))
    assert "nothing changed in 4 cases" in str(changes.sentence(same))


def test_the_terminal_names_each_change_and_counts_the_rest():
    found = [line.text for line in changes.lines(diff(), limit=1)]
    assert f"  failed       {CASES[0].id}: 3 of 4096 elements are too far from the golden" in found
    assert "  ... and 1 more" in found


def test_json_has_every_change():
    data = json.loads(codec.dumps(changes.to_dict(diff())))
    assert (data["answer"], data["counts"]["regression"]) == ("no", 1)
    assert [each["kind"] for each in data["changes"]] == ["regression", "error-drift", "error-drift", "not-run"]
    assert data["changes"][1] == {
        "kind": "error-drift",
        "case": CASES[1].id,
        "before": "10 %",
        "after": "40 %",
        "finding": "",
        "name": "limit_used",
        "factor": 4.0,
        "deviates": False,
    }


def test_the_page_has_both_runs_and_every_change():
    page = Reader(render_diff(diff()))
    assert page.open == []
    assert "No, the later stack may not replace" in page.text
    assert "1 regression" in page.text
    assert page.texts("h2").count("Before") == 1
    assert CASES[0].id in page.text


@pytest.fixture
def hostile():
    cases = synthetic.hostile_cases()
    one, other = ([name] * len(cases) for name in ("passed", "failed"))
    return compare(summary(one, cases=cases), summary(other, cases=cases))


def test_hostile_text_adds_no_element_to_the_page(hostile):
    page = Reader(render_diff(hostile))
    assert len(page.all("script")) == 3
    assert not page.all("img")
    assert page.open == []


def test_nothing_foreign_acts_in_markdown(hostile):
    text = changes.markdown(hostile)
    body = text.replace("> ", "").replace("|---|---|---|---|", "").replace("---|", "")
    assert not set("<>`{}") & set(body)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in rows} <= {5, 6}


def test_nothing_foreign_steers_the_terminal(hostile):
    assert all(line.text.isprintable() for line in changes.lines(hostile, limit=100))


@pytest.fixture
def logs(tmp_path):
    before = synthetic.write_log(tmp_path / "before" / "run.jsonl", CASES)
    after = synthetic.write_log(tmp_path / "after" / "run.jsonl", CASES, outcomes=["failed", "passed"])
    return before.parent, after.parent


def invoke(*arguments):
    return CliRunner().invoke(report, ["diff", *map(str, arguments)], catch_exceptions=False)


def test_a_regression_is_exit_code_1_and_a_fix_is_0(logs):
    before, after = logs
    assert invoke(before, after).exit_code == 1
    assert invoke(after, before).exit_code == 0
    assert invoke(before, after, "--fail-on", "slower").exit_code == 0


@pytest.mark.parametrize(("form", "start"), [("html", "<!doctype html>"), ("json", "{"), ("markdown", "### No")])
def test_each_form_goes_where_it_is_wanted(logs, tmp_path, form, start):
    assert invoke(*logs, "--format", form).output.lstrip().startswith(start)
    invoke(*logs, "--format", form, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8").lstrip().startswith(start)


def test_a_page_can_say_what_changed_since_an_earlier_run(logs):
    before, after = logs
    arguments = ["render", str(after), "--against", str(before)]
    assert CliRunner().invoke(report, arguments, catch_exceptions=False).exit_code == 0
    assert "2 regressions" in Reader((after / "conformance.html").read_text(encoding="utf-8")).text
