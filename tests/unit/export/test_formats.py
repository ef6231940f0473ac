"""A run in the forms that other programs read: each is read back by a reader that is not ours."""

import csv
import io
import json
from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from pytest_ascend.export import formats
from pytest_ascend.page.commands import report
from pytest_ascend.records.outcome import OUTCOMES
from tests.unit.runlog import synthetic
from tests.unit.verdict.test_diff import CASES, summary

EVERY = list(OUTCOMES)


def of_every_outcome():
    return summary(EVERY, cases=synthetic.op_cases(len(EVERY)), stack=synthetic.EMULATED)


@pytest.fixture
def hostile():
    cases = synthetic.hostile_cases()
    return summary(["failed"] * len(cases), cases=cases)


def test_junit_counts_each_case_once_and_keeps_our_outcome():
    root = ET.fromstring(formats.junit(of_every_outcome()))  # noqa: S314 - we wrote it
    outcomes = Counter(each.get("value") for each in root.iter("property") if each.get("name") == "ascend_outcome")
    assert outcomes == Counter(EVERY)
    (suite,) = root.findall("testsuite")
    assert int(suite.get("tests")) == len(EVERY) == len(suite.findall("testcase"))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.get(name)) == len(list(suite.iter(kind))) > 0
    durations = [float(each.get("time")) for each in suite.iter("testcase")]
    assert float(suite.get("time")) == pytest.approx(sum(durations), abs=0.01)
    assert sum(durations) > 0
    assert suite.get("timestamp") == synthetic.STARTED
    plain = [each for each in suite.iter("testcase") if not {child.tag for child in each} - {"properties"}]
    assert len(plain) == 1, "only a pass may look like one"


def test_csv_has_a_row_for_each_case_and_no_formula(hostile):
    rows = list(csv.DictReader(io.StringIO(formats.table(of_every_outcome()))))
    assert [row["outcome"] for row in rows] == EVERY
    for row in csv.reader(io.StringIO(formats.table(hostile))):
        assert not any(cell[:1] in {"=", "+", "-", "@"} for cell in row)


def test_json_names_causes_and_the_cases_of_each():
    found = json.loads(formats.document(of_every_outcome()))
    assert found["schema"] == 1
    assert found["verdict"]["kind"] == "does-not-conform"
    by_id = Counter(row["cause"] for row in found["cases"] if row["cause"])
    assert {cause["id"]: cause["cases"] for cause in found["causes"]} == by_id


def test_the_relay_gets_texts_within_its_limits():
    many = synthetic.op_cases(1_200)

    def tell(result):
        verdicts = tuple(synthetic.replace(each, message="\u8bef" * 5_000) for each in result.verdicts)
        return synthetic.replace(result, outcome=OUTCOMES["failed"](reason="\u8bef" * 2_000), verdicts=verdicts)

    inputs = json.loads(formats.relay(summary(["failed"] * 1_200, cases=many, change=tell)))
    detail, counts, triage = (
        json.loads(inputs[name]) for name in ("failed-tests-detail", "test-results", "triage-verdict")
    )
    assert inputs["conclusion"] == "failure"
    assert counts == {"passed": 0, "failed": 1_200, "skipped": 0}
    assert len(detail) == 1_000
    sizes = [tuple(len(each[name].encode()) for name in ("message", "stacktrace")) for each in detail]
    assert max(sizes) <= (1_000, 4_000)
    assert min(sizes) > (900, 3_900), "and cut no further, and between characters"
    assert (triage["schema_version"], triage["category"], triage["confidence"]) == (1, "backend", 1.0)
    assert 1 <= len(triage["evidence"]) <= 10


def test_a_clean_run_blames_nobody():
    inputs = json.loads(formats.relay(summary(["passed"] * 4)))
    assert inputs["conclusion"] == "success"
    assert json.loads(inputs["triage-verdict"])["category"] == "unknown"


@pytest.mark.parametrize(
    ("outcome", "kind", "side"),
    [
        ("failed", "", "backend"),
        ("fallback", "", "backend"),
        ("unsupported", "", "backend"),
        ("flaky", "", "flake"),
        ("not-run", "", "infra"),
        ("errored", "", "unknown"),
        ("errored", "kernel", "unknown"),
        ("errored", "device-lost", "infra"),
        ("errored", "hccl", "infra"),
        ("errored", "tool-missing", "infra"),
        ("errored", "version-mismatch", "infra"),
    ],
)
def test_the_relay_says_who_has_to_look_and_whether_it_came_back(outcome, kind, side):
    def same(result):
        if result.outcome.name != outcome:
            return result
        codes = {"kind": kind, "codes": [{"code": "1", "says": "", "source": ""}]}
        return synthetic.replace(result, outcome=OUTCOMES[outcome](reason="so it was"), diagnosis=codes if kind else {})

    found = summary(["passed", outcome, outcome, outcome], change=same)
    triage = json.loads(json.loads(formats.relay(found))["triage-verdict"])
    told = (triage["category"], triage["confidence"], triage["reproduced_on_retry"])
    assert told == (side, 1.0, outcome != "flaky")


def test_annotations_are_one_a_line_whatever_the_cases_are_called(hostile):
    lines = formats.github(hostile).splitlines()
    assert lines
    assert all(line.startswith(("::error title=", "::notice title=")) for line in lines)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("form", formats.FORMATS)
def test_hostile_text_is_shown_and_does_nothing(form, hostile):
    text = formats.FORMATS[form](hostile)
    assert all(character.isprintable() or character in "\n\t" for character in text)


def test_the_command_writes_it_and_gates_where_asked(tmp_path):
    log = synthetic.write_log(tmp_path / "run.jsonl", CASES, outcomes=["failed"], stack=synthetic.HARDWARE)
    given = ["export", str(log), "--format=csv", "-o", str(tmp_path / "cases.csv")]
    found = CliRunner().invoke(report, given, catch_exceptions=False)
    assert (found.exit_code, found.output) == (0, f"{len(CASES)} cases: {tmp_path / 'cases.csv'}\n")
    assert "ops/relu" in (tmp_path / "cases.csv").read_text(encoding="utf-8")
    assert CliRunner().invoke(report, [*given, "--gate"], catch_exceptions=False).exit_code == 1
