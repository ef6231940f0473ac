"""Others' tests: each has an outcome, whatever becomes of its process; lists are compared with, and become rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Failed, Passed, Unsupported
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.writing import read as read_log
from pytest_ascend.upstream import comparison, lists, rules, running
from pytest_ascend.upstream.commands import upstream
from pytest_ascend.verdict.summary import summarise
from tests import forks
from tools.versions import others, page_of_foreign

THEIRS = """
import os, sys, unittest

class TestTheirs(unittest.TestCase):
    def test_a(self): pass
    def test_b_fails(self): self.fail("result error")
    def test_c_dies(self): os.abort()
    def test_d_is_skipped(self): self.skipTest("needs eight cards")
    def test_e_is_wrong_itself(self): self.fail("its own fault")
    def test_f_fails_in_a_part(self):
        for each in range(2):
            with self.subTest(each): self.assertEqual(each, 0)
    @unittest.expectedFailure
    def test_g_is_to_fail(self): self.fail("as expected")
    def test_h_is_the_main_module(self): self.assertIs(sys.modules["__main__"].TestTheirs, TestTheirs)

class TestNotSetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise RuntimeError("no card is left")
    def test_a(self): pass

if __name__ == "__main__":
    unittest.main()
"""


def became(file: Path, **choice: Any) -> dict[str, tuple[str, str]]:
    seen = running.run(file, running.Choice(device="cpu", **choice), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    return {name: (event["outcome"], event.get("reason", "")) for name, event in seen.events.items()}


def test_every_test_has_an_outcome(tmp_path: Path) -> None:
    file = tmp_path / "test_theirs.py"
    file.write_text(THEIRS, encoding="utf-8")
    found = {name.removeprefix("TestTheirs::test_"): each for name, each in became(file).items()}
    assert found.pop("setUpClass (__main__.TestNotSetUp)") == ("errored", "RuntimeError: no card is left")
    assert found.pop("c_dies") == ("errored", "the process died: SIGABRT")
    assert found.pop("b_fails") == ("failed", "result error")
    assert found.pop("d_is_skipped") == ("skipped", "needs eight cards")
    outcomes = {name: outcome for name, (outcome, _) in found.items()}
    assert outcomes == {
        "a": "passed",
        "e_is_wrong_itself": "failed",
        "f_fails_in_a_part": "failed",
        "g_is_to_fail": "passed",
        "h_is_the_main_module": "passed",
    }


@pytest.mark.parametrize(
    ("text", "file_s", "reason"),
    [
        ("import unittest\nwhile True: pass", 5.0, "slow: the file's time was up"),
        ("raise SystemExit('no')", 60.0, "it has no tests"),
    ],
)
def test_a_file_that_runs_nothing_says_why(tmp_path: Path, text: str, file_s: float, reason: str) -> None:
    file = tmp_path / "test_theirs.py"
    file.write_text(text, encoding="utf-8")
    ((name, (outcome, said)),) = became(file, file_s=file_s).items()
    assert (name, outcome) == ("(file)", "errored")
    assert reason in said


def test_a_test_that_hangs_is_ended_and_the_others_run(tmp_path: Path) -> None:
    file = tmp_path / "test_theirs.py"
    file.write_text(THEIRS.replace("os.abort()", "__import__('time').sleep(600)"), encoding="utf-8")
    found = became(file, test_s=4.0, match="_(a|c_dies|g_is_to_fail)$")
    assert found["TestTheirs::test_c_dies"] == ("errored", "slow: no end within 4 s")
    assert found["TestTheirs::test_a"][0] == found["TestTheirs::test_g_is_to_fail"][0] == "passed"


def test_the_command_writes_a_log_and_the_board_counts_it(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_theirs.py").write_text(THEIRS, encoding="utf-8")
    listed, report = tmp_path / "listed.jsonl", tmp_path / "report"
    listed.write_text('{"nodeid": "test/test_theirs.py::TestTheirs::test_c_dies"}\n', encoding="utf-8")
    options = ["--device", "cpu", "-o", str(report), "--list", str(listed), "--only", "unlisted", "-k", "TestTheirs"]
    done = CliRunner().invoke(upstream, [str(tmp_path), *options])
    assert done.exit_code == 1, done.output
    assert "6 tests executed, 50.0 % pass, 1 skipped" in done.output
    log = read_log(report / "run.jsonl")
    assert {each.node_id for each in log.records} >= {"test/test_theirs.py::TestTheirs::test_a"}
    assert summarise(log).counts["passed"] == 3  # by their own checks, although we compared nothing
    assert len((report / "tests.txt").read_text(encoding="utf-8").split()) == 9
    board = others(report, {"test/test_theirs.py::TestTheirs::test_e_is_wrong_itself": "proven"})
    entry = board["test/test_theirs.py"]
    assert entry["outcomes"] == {"passed": 3, "failed": 2, "set aside": 1}
    assert entry["skipped"] == {"needs eight cards": 1}
    text = page_of_foreign({"theirs, emulated": board})
    assert "| theirs, emulated | 1 | 0 | 5, 1 set aside | 3 | 0 | 0 | 0 | 2 | 0 |" in text


@pytest.mark.parametrize(
    ("option", "value"),
    [("--sample", "²/3"), ("--sample", "2/1"), ("--jobs", "0"), ("-k", "["), ("--files", ""), ("--files", "/etc/*")],
)
def test_an_option_that_says_nothing_is_refused(tmp_path: Path, option: str, value: str) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS, encoding="utf-8")
    done = CliRunner().invoke(upstream, [str(tmp_path), option, value], standalone_mode=False)
    assert isinstance(done.exception, click.BadParameter | UsageError), done.exception


def test_what_is_not_emulated_is_counted_apart() -> None:
    entry = {
        "day": "2026-11-22",
        "outcomes": {"passed": 3, "not-emulated": 1, "unsupported": 2},
        "causes": {"a `b` | c": 1, "unsupported: aclnnExp": 2},
        "skipped": {},
    }
    text = page_of_foreign({"theirs": {"test_x.py": entry}})
    assert "| theirs | 1 | 0 | 6 | 3 | 0 | 2 | 1 | 0 | 0 |" in text
    assert "aclnnExp" not in text
    assert "- theirs: `a 'b' | c` (1)" in text


@pytest.fixture
def listed(tmp_path: Path) -> lists.Listed:
    file = tmp_path / "disabled.json"
    names = {
        "test_out_npu_float16 (__main__.TestUnaryPRIVATEUSE1)": ["", [""]],
        "test_cat (__main__.TestViewNPU)": ["", ["A2"]],
        "test_grad (test_nn.TestNN)": ["", [""]],
        "test_old (__main__.TestOnly910)": ["", ["910A"]],
        "without a class": ["", [""]],
    }
    file.write_text(json.dumps(names), encoding="utf-8")
    return lists.read([file])


@pytest.mark.parametrize(
    ("test", "of", "expected"),
    [
        ("test_out_npu_float16", "TestUnaryPRIVATEUSE1", True),
        ("test_out_npu_float16", "TestUnaryNPU", True),
        ("test_out_npu_float32", "TestUnaryPRIVATEUSE1", False),
        ("test_out_npu_float16", "TestBinaryPRIVATEUSE1", False),
        ("test_cat_npu_int64_bfloat16", "TestViewPRIVATEUSE1", True),
        ("test_cat_npu", "TestViewPRIVATEUSE1", True),
        ("test_cat_empty_npu", "TestViewPRIVATEUSE1", False),
        ("test_grad", "TestNNDevice", True),
        ("test_grad", "TestModules", False),
        ("test_old", "TestOnly910", False),
    ],
)
def test_a_list_names_a_test_with_or_without_its_device(
    listed: lists.Listed, test: str, of: str, *, expected: bool
) -> None:
    assert bool(listed.of("test/any.py", f"{of}::{test}")) is expected


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '{"a::b::c": 1', '[{"nodeid": null}]', "[" * 5000])
def test_what_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"list\.json"):
        lists.read([tmp_path / "list.json"])


def record(name: str, outcome: Any) -> ResultRecord:
    return ResultRecord.of(Case(suite="user", subject="x", property=name), f"test/test_x.py::TestX::{name}", outcome)


@pytest.mark.parametrize(
    ("there", "here", "verdict"),
    [
        (
            "not implemented for DT_DOUBLE",
            Unsupported(reason="aclnnRelu: not implemented for DT_DOUBLE"),
            comparison.SAME,
        ),
        ("not implemented for DT_DOUBLE", Unsupported(reason="not implemented for DT_INT16"), comparison.OTHER),
        ("not implemented for DT_DOUBLE", Failed(reason="1.0 != 2.0"), comparison.OTHER),
        ("not implemented for DT_DOUBLE", Passed(), comparison.PASSES),
        ("acl not supported: aclnnGcd", Unsupported(reason="x", detail="aclnnGcd: EZ1001"), comparison.SAME),
        ("acl not supported: log1p", Unsupported(reason="aclnnInplaceLog1p: EZ1001"), comparison.SAME),
        ("cannot be larger than 8 dimensions", Unsupported(reason="dim 9 exceeds 8 dimensions"), comparison.SAME),
        (None, Passed(), comparison.BOTH_PASS),
        (None, Failed(reason="wrong"), comparison.ONLY_HERE),
    ],
)
def test_a_test_is_compared_by_its_reason(there: str | None, here: Any, verdict: str) -> None:
    entry = lists.Entry("test/test_x.py::TestX::test_a", "test_a", "TestX", "test/test_x.py", there or "")
    found = comparison.compare([record("test_a", here)], lists.Listed({"test_a": [entry]} if there else {}))
    assert [kind for kind, _, _ in found] == [verdict]


def test_of_a_test_that_ran_again_the_last_result_counts() -> None:
    found = comparison.compare([record("test_a", Failed(reason="wrong")), record("test_a", Passed())], lists.Listed({}))
    assert [(kind, len(tests)) for (kind, _, _), tests in found.items()] == [(comparison.BOTH_PASS, 1)]


def test_what_a_log_says_is_text_in_one_cell_of_the_comparison() -> None:
    found = comparison.compare([record("test_a", Failed(reason="\x1b[31m\0 | `x`\ny"))], lists.Listed({}))
    *_, row, end = comparison.table(found, "the list").split("\n")
    assert end == ""
    assert row.isprintable()
    assert row.count("|") == 6


def test_a_file_that_is_no_text_has_no_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_bytes(b'[{"\xff')
    with pytest.raises(UsageError, match="has no rules"):
        rules.read(tmp_path / "rules.json")


DTYPES = ("float16", "float32", "float64", "int8")
OPERATORS = {"exp": "exp", "log": "log", "nn_functional_relu": "nn.functional.relu"}
IDS = [
    f"test/test_ops.py::TestCommonPRIVATEUSE1::test_{what}_{of}_npu_{dtype}"
    for what in ("out", "errors", "noncontiguous_samples")
    for of in OPERATORS
    for dtype in DTYPES
]


def test_lists_become_rules_and_rules_lists(tmp_path: Path) -> None:
    refused = [each for each in IDS if each.endswith("float64") or "_exp_npu_int8" in each or each == IDS[5]]
    known, tests, made = (tmp_path / each for each in ("list.json", "tests.txt", "rules.json"))
    known.write_text(json.dumps({each: {"reason": "not for DT_X"} for each in refused}), encoding="utf-8")
    tests.write_text("\n".join(IDS), encoding="utf-8")
    found = rules.derive(lists.read([known]), IDS, "a card, today", OPERATORS)
    assert [(each.operators, each.dtypes, each.count) for each in found] == [
        (("exp", "log", "nn_functional_relu"), ("float64",), 9),
        (("exp",), ("int8",), 3),
        (("log",), ("float32",), 1),
    ]
    made.write_text(rules.write(found), encoding="utf-8")
    out = rules.excluded(rules.read(made), IDS, OPERATORS)
    assert sorted(out) == sorted(refused)
    for form in ("ids", "disabled"):
        known.write_text(rules.as_list(out, form), encoding="utf-8")
        again = lists.read([known])
        assert [each for each in IDS if again.of(*each.split("::", 1))] == [each for each in IDS if each in out]


def test_configs_exclude_operators_in_dtypes(tmp_path: Path) -> None:
    rows = [
        rules.Rule(reason="no double", source="x", operators=("nn_functional_relu",), dtypes=("float64",)),
        rules.Rule(reason="hangs", source="x", classes=("TestCommon",), tests=("test_slow",)),
    ]
    text = rules.as_configs(rows, OPERATORS)
    assert "(['nn.functional.relu'], None, None, ('float64',), 'no double')" in text
    assert "test_exclusions={'TestCommon': ['test_slow']}" in text
    compile(text, "configs", "exec")


PYTESTS = """
import pytest

def test_right(): pass
def test_wrong(): assert 1 == 2
def test_quoted(): raise AssertionError("Device raised RuntimeError but CPU succeeded: not implemented for 'Half'")
def test_left_out(): pytest.skip("needs eight cards")
"""


def test_others_suites_of_pytest_are_kept_as_a_log(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(PYTESTS, encoding="utf-8")
    plugin = ("-p", "pytest_ascend.upstream.plugin", "--upstream-report", tmp_path / "report")
    done = forks.run("pytest", "-q", *plugin, "test_suite.py", where=tmp_path)
    assert "2 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    log = read_log(tmp_path / "report" / "run.jsonl")
    found = {each.node_id.rpartition("::")[2]: each.outcome_name for each in log.records}
    assert found == {"test_right": "passed", "test_wrong": "failed", "test_quoted": "unsupported"}
    assert "needs eight cards" in (tmp_path / "report" / "skipped.json").read_text(encoding="utf-8")
