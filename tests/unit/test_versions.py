"""The table of versions: a repaired version is asked again only for what did not pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import versions
from tools.versions import counted, page, repeated, trained


def record(name: str, outcome: str) -> dict[str, Any]:
    return {"type": "record", "case": {"id": name}, "outcome": outcome, "reason": f"{outcome}: of {name}"}


def write(log: Path, *records: dict[str, Any]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with a pytest that keeps its arguments, and reports what is in the file ``next``."""
    program = tmp_path / "bin" / "pytest"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nmkdir report\ncp {tmp_path}/next report/run.jsonl\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program.parent


def test_only_what_did_not_pass_runs_again_and_replaces_what_was_known(programs: Path, tmp_path: Path) -> None:
    before = [record("a", "passed"), record("b", "failed"), record("c", "errored"), record("d", "waived")]
    header = {"type": "header", "manifest": [{"id": name} for name in "abcde"]}
    write(tmp_path / "kept" / "run.jsonl", header, *before)
    write(tmp_path / "next", record("b", "passed"), record("c", "errored"))
    known = {"torch": "2.3.1", "level": "smoke", **counted(before)}
    found = repeated(programs, known, tmp_path / "kept")
    assert "-k b or c or e" in (tmp_path / "asked").read_text(encoding="utf-8")
    assert found["outcomes"] == {"passed": 2, "errored": 1, "waived": 1, "not-run": 1}
    assert found["causes"] == {"errored: errored: of c": 1, "not-run: no result": 1}
    assert found["torch"] == "2.3.1"


def test_where_all_passed_nothing_runs(programs: Path, tmp_path: Path) -> None:
    write(tmp_path / "kept" / "run.jsonl", record("a", "passed"))
    assert repeated(programs, {"level": "smoke"}, tmp_path / "kept") == {"level": "smoke"}
    assert not (tmp_path / "asked").exists()


def test_the_training_of_the_two_models_is_counted_and_on_the_page() -> None:
    outcomes = {
        "models/resnet50/training/float32": "passed",
        "models/vit_b_16/autocast-training/bfloat16": "failed",
        "models/vit_b_16/gradients/float32": "failed",
        "models/resnet50.compiled/training/float32": "failed",
        "training/sgd/losses/float32": "failed",
    }
    records = {name: record(name, outcome) for name, outcome in outcomes.items()}
    assert trained(records) == {"trained": {"passed": 1, "failed": 1}}
    assert trained({}) == {}
    known = {"torch": "2.3.1", "cann": "", "level": "smoke", "day": "2026-11-23", "outcomes": {"passed": 7}}
    text = page({"2.3.1": {**known, **trained(records)}, "2.4.0": known})
    assert "| 7 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 of 2 | 2026-11-23, smoke |" in text
    assert "| 7 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |  | 2026-11-23, smoke |" in text


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({"outcomes": {"passed": 3, "waived": 1, "unsupported": 1}}, 0),
        ({"outcomes": {"passed": 3, "failed": 1}, "causes": {"failed: it differs": 1}}, 1),
        ({"outcomes": {"passed": 3, "flaky": 1}, "causes": {"flaky: it died": 1}}, 0),
        ({"outcomes": {"passed": 3, "not-emulated": 1}, "causes": {"not-emulated: aclnnNew": 1}}, 1),
        ({"fails": "signal 6: no message"}, 1),
    ],
)
def test_a_version_is_checked(
    found: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "installed", lambda _version, _python, folder: folder / "bin")
    monkeypatch.setattr(versions, "seen", lambda *_, **__: found)
    assert versions.check("2.1.0", "python3", "smoke") == code
    said = capsys.readouterr().out
    assert all(each in said for each in ("2.1.0, smoke", *found.get("causes", ()), found.get("fails", "")))


def test_a_version_that_cannot_be_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")  # no uv
    assert versions.check("2.1.0", "python3", "smoke") == versions.LEFT_OUT
    assert "2.1.0: left out, cannot be installed here" in capsys.readouterr().out
