"""Other people's tests: each has an outcome, whatever becomes of its process, and the board counts them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.foreign import reporter, run
from tools.versions import page_of_foreign

THEIRS = """
import os, unittest

class TestTheirs(unittest.TestCase):
    def test_a(self): pass
    def test_b_fails(self): self.fail("result error")
    def test_c_dies(self): os.abort()
    def test_d_is_skipped(self): self.skipTest("needs eight cards")
    def test_e_is_wrong_itself(self): self.fail("its own fault")
    def test_c_dies_in_name_only(self): pass
"""
SKIPPED = """
import unittest

@unittest.skip("only on a 310P")
class TestTheirs(unittest.TestCase):
    def test_a(self): pass
"""


def became(folder: Path, name: str, text: str, **aside: str) -> dict[str, Any]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    found = run.run(file, {}, 60.0, 120.0)
    rows = list(run.records(file, found))
    proofs = {f"{folder.name}/{name}::TestTheirs::{test}": why for test, why in aside.items()}
    return run.seen(rows, found, proofs)


def test_every_test_has_an_outcome_and_the_board_counts_it(tmp_path: Path) -> None:
    mixed = became(tmp_path, "test_mixed.py", THEIRS, test_e_is_wrong_itself="proven", test_a="proven")
    assert mixed["outcomes"] == {"passed": 2, "failed": 1, "errored": 1, "set aside": 1}
    assert mixed["skipped"] == {"needs eight cards": 1}
    assert set(mixed["causes"]) == {"failed: result error", "errored: the process died: SIGABRT"}
    whole = became(tmp_path, "test_whole.py", SKIPPED)
    assert whole["outcomes"] == {}
    text = page_of_foreign({"theirs, emulated": {"test_mixed.py": mixed, "test_whole.py": whole}})
    day = mixed["day"]
    assert f"| theirs, emulated | 2 | 1 | 4, 1 set aside | 2 | 0 | 2 | 50.0 %, 50.0 % of emulated | {day} |" in text
    assert "- theirs, emulated: skipped whole: `only on a 310P` (1 files)" in text


def test_what_is_not_emulated_is_counted_apart() -> None:
    entry = {
        "day": "2026-11-22",
        "outcomes": {"passed": 3, "not-emulated": 1},
        "causes": {"a `b` | c": 1},
        "skipped": {},
    }
    text = page_of_foreign({"theirs": {"test_x.py": entry}})
    assert "| 4, 0 set aside | 3 | 1 | 0 | 75.0 %, 100.0 % of emulated |" in text
    assert "- theirs: `a 'b' | c` (1)" in text


def test_a_file_that_is_run_again_replaces_what_was_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = tmp_path / "board.json"
    monkeypatch.setattr(run, "BOARD", board)
    for file, outcome in (("a.py", "failed"), ("b.py", "passed"), ("a.py", "passed")):
        run.keep("theirs", "emulated", file, {"outcomes": {outcome: 1}})
    text = board.read_text(encoding="utf-8")
    assert text.count('"passed": 1') == 2
    assert "failed" not in text


LISTED = reporter.disabled(
    [
        "test_out_npu_float16 (__main__.TestUnaryPRIVATEUSE1)",
        "test_cat (__main__.TestViewNPU)",
        "test_grad (test_nn.TestNN)",
        "without a class",
    ]
)


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
        ("without", "Any", False),
    ],
)
def test_a_list_names_a_test_with_or_without_its_device(test: str, of: str, *, expected: bool) -> None:
    assert reporter.is_listed(test, of, LISTED) is expected


def test_what_is_on_the_list_is_skipped_with_that_reason(tmp_path: Path) -> None:
    file, listed = tmp_path / "test_mixed.py", tmp_path / "disabled.json"
    file.write_text(THEIRS, encoding="utf-8")
    names = [f"test_{each} (__main__.TestTheirs)" for each in ("b_fails", "c_dies", "e_is_wrong_itself")]
    elsewhere = {"test_a (__main__.TestTheirs)": ["", ["910A"]]}
    listed.write_text(json.dumps(elsewhere | {name: ["", [""]] for name in names}), encoding="utf-8")
    variables = {"FOREIGN_DISABLED": str(listed), "FOREIGN_CHOSEN": "not in_name_only"}
    found = run.run(file, variables, 60.0, 120.0)
    seen = run.seen(list(run.records(file, found)), found, {})
    assert seen["outcomes"] == {"passed": 1}
    assert seen["skipped"] == {reporter.DISABLED: 3, "needs eight cards": 1}
    text = page_of_foreign({"theirs, emulated": {"test_mixed.py": seen}})
    assert "- theirs, emulated: left out: on the list of disabled tests (3 tests)" in text
