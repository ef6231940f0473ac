"""The table of versions, and whether a version fares well."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from tools import versions
from tools.versions import page, trained


def record(name: str, outcome: str) -> ResultRecord:
    suite, subject, prop, dtype = name.split("/")
    return ResultRecord.of(Case(suite=suite, subject=subject, property=prop, dtype=dtype), "", OUTCOMES[outcome]())


def test_the_training_of_the_two_models_is_counted_and_on_the_page() -> None:
    outcomes = {
        "models/resnet50/training/float32": "passed",
        "models/vit_b_16/autocast-training/bfloat16": "failed",
        "models/vit_b_16/gradients/float32": "failed",
        "models/resnet50.compiled/training/float32": "failed",
        "training/sgd/losses/float32": "failed",
    }
    records = [record(name, outcome) for name, outcome in outcomes.items()]
    assert trained(records) == {"trained": {"passed": 1, "failed": 1}}
    assert trained(()) == {}
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
