"""Other people's tests: each has an outcome, whatever becomes of its process, and the board counts them as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.foreign import run
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
