"""What a machine answers is packed without names, and read again as data; a damaged kit is refused."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.contact import kit as kits
from pytest_ascend.contact.data import confirm, data_of, read_kit, write
from pytest_ascend.contact.kit import Answer, Kit, pack
from pytest_ascend.coverage import expectations
from pytest_ascend.environment import chips, measured
from pytest_ascend.environment.codes import codes_in
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Stack
from pytest_ascend.records.outcome import Failed, Passed
from pytest_ascend.system import bundled

#: A case of which a deviation is expected, by the cause that names it, and one of which none is.
WAIVED, BETTER = "ops/conj_physical/in-place/complex64", "ops/dist/backward/complex64"
CAUSES, PLAIN = {WAIVED: "no-inplace-conj", BETTER: "no-complex-gradient"}, "ops/abs/forward/float32"


def _record(case: str, outcome: str, **said: Any) -> str:
    return json.dumps({"type": "record", "case": {"id": case}, "outcome": outcome, "duration_s": 1.5, **said}) + "\n"


def _kit(*, emulated: bool = False, **steps: Any) -> Kit:
    answers = [Answer(name=name.replace("_", "-"), status="done", data=data) for name, data in steps.items()]
    made = Kit(environ={}, emulated=emulated, say=lambda line: None, answers=answers)
    made.files["smoke/run.jsonl"] = (
        _record(WAIVED, "waived", waiver={"cause": CAUSES[WAIVED], "outcome": "unsupported"})
        + _record(BETTER, "passed", reason="better than expected (unsupported: x): remove it from y")
        + _record(PLAIN, "passed")
        + _record("ops/invented/forward/float32", "passed")
        + "not json\n"
    )
    return made


ABS = {
    "float32": {"by": "npu", "of": ["aten::abs"]},
    "float64": {"by": "", "of": ["aten::abs"], "said": "error code is 161002"},
    "int16": {"by": "cpu", "of": ["aten::abs"]},
}
STEPS = {
    "start_up": {"chip": "Ascend910B3", "torch_npu": "2.13.0", "memory_total_bytes": 2**36, "first_use_s": 4.5},
    "dtypes": {"abs": ABS, "two": {"float32": {"by": "npu", "of": ["aten::ne", "aten::mul"]}}},
    "recovery": {"usable_after_s": 12.0, "said": ["507899 EL0005: The resources are busy.", "error code is 507799"]},
    "clock": {
        "idle": "Aicore Freq(MHZ) : 1850\nAicore curFreq(MHZ) : 800",
        "loaded": "Aicore curFreq(MHZ) : 1850",
    },
}


def _data(folder: Path, **changes: Any) -> dict[str, Any]:
    pack(_kit(**{**STEPS, **changes}), folder / "contact.zip")
    return data_of(read_kit(folder / "contact.zip"))


@pytest.fixture
def baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return baselines of its own, which the package takes for its own."""
    copied = tmp_path / "baselines"
    copied.mkdir()
    shutil.copy(bundled.folder("baselines") / expectations.NAME, copied)
    kept = bundled.folder
    monkeypatch.setattr(bundled, "folder", lambda name: copied if name == "baselines" else kept(name))
    measured._read.cache_clear()
    yield copied
    measured._read.cache_clear()


def test_a_kit_becomes_data(tmp_path: Path) -> None:
    data = _data(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["contact.zip"]
    assert data["chip"]["clock_mhz"] == {"idle": 800, "loaded": 1850, "rated": 1850}
    assert (data["chip"]["chip"], data["chip"]["recovery_s"]) == ("Ascend910B3", 12.0)
    assert data["dtypes"]["operators"]["abs"] == {"float32": "npu", "float64": "", "int16": "cpu"}
    assert data["dtypes"]["aten"] == {"abs": {"float32": "npu", "float64": "", "int16": "cpu"}}
    assert data["codes"]["EL0005"]["known"] is True
    assert data["codes"]["507799"] == {"known": False, "said": '"error code is 507799"'}
    assert data["durations"] == {WAIVED: 1.5, BETTER: 1.5, PLAIN: 1.5}
    folder = write(data, tmp_path / "kept")
    assert sorted(each.name for each in folder.iterdir()) == [f"{name}.json" for name in sorted(data)]


def test_what_a_kit_says_is_what_the_project_answers_by(tmp_path: Path, baselines: Path) -> None:
    chip = "Ascend910_9382"
    with pytest.raises(UsageError, match="no chip"):
        chips.npu_of(chip)
    assert measured.objections("abs", ["float64"], chip) is None
    measured._read.cache_clear()
    write(_data(tmp_path, start_up={**STEPS["start_up"], "chip": chip}), baselines)
    assert chips.npu_of(chip).memory_bytes == 2**36
    assert measured.objections("abs", ["float32"], chip) == ()
    assert measured.objections("abs", ["float32", "float64"], chip) == ("float64 is refused there (contact kit)",)
    assert measured.objections("abs", ["int16"], chip) == ("int16 is computed by the CPU there (contact kit)",)
    assert measured.durations_s(chip)[PLAIN] == 1.5
    (found,) = codes_in("it failed: error code is 507799")
    assert (found.says, found.source) == ('"error code is 507799"', f"contact kit of an {chip}")


def test_the_emulated_device_is_kept_apart_and_confirms_nothing(tmp_path: Path, baselines: Path) -> None:
    pack(_kit(emulated=True, **STEPS), tmp_path / "contact.zip")
    data, before = data_of(read_kit(tmp_path / "contact.zip")), (baselines / expectations.NAME).read_bytes()
    assert write(data, baselines).name == "Ascend910B3-emulated"
    assert confirm(data, baselines, date(2026, 11, 22)) == (0, [])
    assert (baselines / expectations.NAME).read_bytes() == before
    assert measured.memory_bytes("Ascend910B3") == 0


@pytest.mark.parametrize(
    ("chip", "emulated", "confirmed"),
    [("Ascend910B3", False, True), ("Ascend310P3", False, False), ("Ascend910B3", True, False)],
)
def test_a_deviation_is_confirmed_on_the_chip_that_showed_it(
    tmp_path: Path, baselines: Path, chip: str, emulated: bool, confirmed: bool
) -> None:
    path = baselines / expectations.NAME
    for _ in range(2):  # a second kit of the same chip changes nothing
        assert confirm(_data(tmp_path), baselines, date(2026, 11, 22)) == (1, [BETTER])
    found = expectations.load([path], Stack(device="npu", emulated=emulated, chip=chip, torch_npu="2.13.0"))
    entry, other = found.find(WAIVED), found.find(BETTER)
    assert entry is not None
    assert other is not None
    assert (entry.cause, entry.confirmed, other.confirmed) == (CAUSES[WAIVED], confirmed, False)
    judged = entry.judge(Passed(), date(2026, 11, 22))
    assert isinstance(judged, Failed if confirmed else Passed)
    assert len([each for each in json.loads(path.read_bytes())["causes"] if each["cause"] == CAUSES[WAIVED]]) == 2


def test_a_step_that_hangs_or_fails_is_a_finding() -> None:
    made = Kit(environ={"PATH": "/usr/bin:/bin"}, emulated=False, say=lambda line: None)
    assert made.ask("hangs", ["sleep", "60"], 0.3).status == "late"
    failed = made.ask("fails", ["sh", "-c", "echo on the way; exit 3"], 20)
    assert failed.status == "failed"
    assert "on the way" in failed.output


def test_what_does_not_fit_into_ten_minutes_is_said() -> None:
    made = Kit(environ={}, emulated=False, say=lambda line: None)
    made.began -= kits.WHOLE_S
    assert made.ask("late", ["true"], 10).output == "no time was left for it"


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
    (tmp_path / "text").write_text("no archive", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    for name in ("text", "missing", "pipe", "/dev/zero", "a\0b"):
        with pytest.raises(UsageError, match="is not a contact kit"):
            read_kit(tmp_path / name)


def test_a_damaged_or_swollen_kit_is_one_message(tmp_path: Path) -> None:
    """Cut and altered data, a method of compression that no kit has, and more values than Python should make."""
    path = tmp_path / "contact.zip"
    pack(_kit(), path)
    whole = path.read_bytes()
    compressed = whole.index(b"about.json") + len(b"about.json")
    broken = whole[:compressed] + bytes(reversed(whole[compressed : compressed + 30])) + whole[compressed + 30 :]
    for data in (whole[:-30], broken, whole.replace(b"about.json", b"about.jsom", 1)):
        path.write_bytes(data)
        with pytest.raises(UsageError, match="is not a contact kit"):
            read_kit(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("about.json", "{}")
    with pytest.raises(UsageError, match="compressed as no kit is"):
        read_kit(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(3):
            archive.writestr(f"{index}.json", f"[{'[],' * 700_000}[]]")
    with pytest.raises(UsageError, match="more values than any kit"):
        read_kit(path)


def test_hostile_answers_give_less_and_never_an_error(tmp_path: Path) -> None:
    made = _kit(start_up=[1], dtypes={"../x": {"float32": {"by": "npu"}}, "abs": 7}, recovery="x", clock={"idle": 3})
    made.files["smoke/run.jsonl"] = '{"type": "record", "case": {}, "duration_s": "x"}\n[1]\n'
    made.files["smoke/run.jsonl"] += '{"type": "record", "case": {"id": [1]}}\n'
    pack(made, tmp_path / "contact.zip")
    data = data_of(read_kit(tmp_path / "contact.zip"))
    assert data["dtypes"] == {"operators": {}, "aten": {}}
    assert write(data, tmp_path / "kept").name == "unknown"
