"""What a re-execution, or a second issuer's run, shows of the forgeries that the log alone does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.certificate.judgement import disagreements
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import Summary, summarise

from . import runs
from .forgeries import UNSEEN, Change, parsed, record, written

FATES = runs.ended(5, "fallback") | runs.ended(7, "waived", waiver=runs.WAIVER)
#: Forgery -> a word of what is said of it where the truth is found out.
SHOWN = {
    "better figures within the limit": "says that it used 10 % of its limit, and used 50 % here",
    "a failed case rewritten as a pass in every field": "says passed, and is failed here",
    "a fallback rewritten as a pass": "says passed, and is fallback here",
    "a benchmark and its samples made faster": "latency",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return runs.write_log(tmp_path_factory.mktemp("run") / "run.jsonl", FATES).read_bytes()


def summary(path: Path, log: bytes, change: Change) -> Summary:
    made = parsed(log)
    change(made)
    path.write_bytes(written(made))
    return summarise(read(path))


@pytest.mark.parametrize("name", UNSEEN)
def test_what_changes_a_result_is_shown_by_another_run(log: bytes, tmp_path: Path, name: str) -> None:
    failed = record(outcome="failed", reason="differs") if "failed case" in name else lambda log: None
    truth = summary(tmp_path / "truth.jsonl", log, failed)
    said = disagreements(summary(tmp_path / "forged.jsonl", log, UNSEEN[name]), truth)
    assert len(said) == (name in SHOWN)
    assert SHOWN.get(name, "") in "".join(said)


def test_a_run_agrees_with_itself(log: bytes, tmp_path: Path) -> None:
    genuine = summary(tmp_path / "run.jsonl", log, lambda log: None)
    assert disagreements(genuine, genuine) == []
