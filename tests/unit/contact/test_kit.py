"""What a machine answers is packed without names, and read again as data; a damaged kit is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.contact import kit as kits
from pytest_ascend.contact.commands import data_of, read_kit, write
from pytest_ascend.contact.kit import Answer, Kit, Redaction, pack
from pytest_ascend.errors import UsageError

PRIVATE = {
    "Serial Number                  : 102230000123": "102230000123",
    "inet 10.44.3.18/24": "10.44.3.18",
    "ether fa:16:3e:aa:bb:cc": "fa:16:3e:aa:bb:cc",
    "fe80:0:0:0:f816:3eff:feaa:bbcc": "f816",
    "/home/zhang/model.pt": "zhang",
    "zhang@example.com": "zhang",
    '"uuid": "0f3d-22"': "0f3d-22",
    "on worker-7.ascend as builder": "worker-7",
    "built by builder": "builder",
}
KEPT = ("driver 24.1.0.3", "bus 0000:C1:00.0", "507899", "3382 / 65536", "2026-11-22T03:00:00", "torch 2.13.0")


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Redaction:
    monkeypatch.setattr(kits.socket, "gethostname", lambda: "worker-7.ascend")
    monkeypatch.setattr(kits, "_user", lambda: "builder")
    return Redaction()


@pytest.mark.parametrize("text", PRIVATE)
def test_names_and_addresses_are_struck_out(strike: Redaction, text: str) -> None:
    assert PRIVATE[text] not in strike(text)


@pytest.mark.parametrize("text", KEPT)
def test_versions_buses_and_codes_are_kept(strike: Redaction, text: str) -> None:
    assert strike(text) == text


def _kit(**steps: Any) -> Kit:
    answers = [Answer(name=name.replace("_", "-"), status="done", data=data) for name, data in steps.items()]
    made = Kit(environ={}, emulated=False, say=lambda line: None, answers=answers)
    case = {"suite": "ops", "subject": "add", "property": "forward", "variant": "float32"}
    record = {"type": "record", "case": case, "outcome": "waived", "waiver": {"reason": "x"}, "duration_s": 1.5}
    made.files["smoke/run.jsonl"] = json.dumps(record) + "\nnot json\n"
    return made


def test_a_kit_becomes_data(tmp_path: Path) -> None:
    made = _kit(
        start_up={"chip": "Ascend910B3", "memory_total_bytes": 2**36, "first_use_s": 4.5},
        dtypes={"ceil": {"float32": {"by": "npu"}, "int32": {"by": "", "said": "EZ1001"}, "bool": {"by": "cpu"}}},
        recovery={"usable_after_s": 12.0, "said": ["507899 EL0005: The resources are busy."]},
        clock={"idle": "Aicore curFreq(MHZ) : 800", "loaded": "Aicore curFreq(MHZ) : 1850"},
    )
    pack(made, tmp_path / "contact.zip")
    assert [each.name for each in tmp_path.iterdir()] == ["contact.zip"]
    data = data_of(read_kit(tmp_path / "contact.zip"))
    assert data["chip"]["clock_mhz"] == {"idle": 800, "loaded": 1850}
    assert (data["chip"]["chip"], data["chip"]["recovery_s"]) == ("Ascend910B3", 12.0)
    assert data["dtypes"] == {"ceil": {"float32": "npu", "int32": "", "bool": "cpu"}}
    assert data["codes"]["EL0005"] is True
    assert list(data["expectations"]["cases"].values()) == ["waived"]
    assert list(data["durations"].values()) == [1.5]
    folder = write(data, tmp_path / "kept")
    assert sorted(each.name for each in folder.iterdir()) == [f"{name}.json" for name in sorted(data)]


def test_a_step_that_hangs_or_fails_is_a_finding() -> None:
    made = Kit(environ={"PATH": "/usr/bin:/bin"}, emulated=False, say=lambda line: None)
    assert made.ask("hangs", ["sleep", "60"], 0.3).status == "late"
    failed = made.ask("fails", ["sh", "-c", "echo on the way; exit 3"], 10)
    assert failed.status == "failed"
    assert "on the way" in failed.output


def test_what_does_not_fit_into_ten_minutes_is_said() -> None:
    made = Kit(environ={}, emulated=False, say=lambda line: None)
    made.began -= kits.WHOLE_S
    assert made.ask("late", ["true"], 10).output == "the ten minutes were over"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"about.json": "{"},
        {"about.json": "[]"},
        {"about.json": '{"schema": 9, "emulated": true, "steps": {}}'},
        {"about.json": "[" * 100_000},
        {f"{index}.txt": "" for index in range(600)},
    ],
)
def test_what_is_no_kit_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with zipfile.ZipFile(tmp_path / "contact.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    with pytest.raises(UsageError):
        read_kit(tmp_path / "contact.zip")


def test_no_file_and_no_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    for name in ("text", "missing"):
        with pytest.raises(UsageError, match="is no contact kit"):
            read_kit(tmp_path / name)


def test_hostile_answers_give_less_and_never_an_error(tmp_path: Path) -> None:
    made = _kit(start_up=[1], dtypes={"../x": {"float32": {"by": "npu"}}, "abs": 7}, recovery="x", clock={"idle": 3})
    made.files["smoke/run.jsonl"] = '{"type": "record", "case": {}, "duration_s": "x"}\n[1]\n'
    pack(made, tmp_path / "contact.zip")
    data = data_of(read_kit(tmp_path / "contact.zip"))
    assert data["dtypes"] == {}
    assert write(data, tmp_path / "kept").name == "unknown"
