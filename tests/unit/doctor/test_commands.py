"""The command: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_ascend.doctor.commands import _lines, doctor
from pytest_ascend.doctor.devices import _row
from pytest_ascend.doctor.findings import Finding
from pytest_ascend.environment.npu_smi import Chip
from pytest_ascend.errors import UsageError

from .hostile import HOSTILE
from .machines import MACHINES
from .trees import build


def invoke(tmp_path: Path, name: str, *options: str) -> Result:
    box = {**MACHINES, **HOSTILE}[name]
    build(tmp_path / "root", box.files)
    (tmp_path / "environ").write_text(
        "".join(f"{key}={value}\n" for key, value in box.environ.items()), encoding="utf-8"
    )
    (tmp_path / "smi").write_text(box.smi or "", encoding="utf-8")
    files = (f"--root={tmp_path / 'root'}", f"--environ={tmp_path / 'environ'}", f"--npu-smi={tmp_path / 'smi'}")
    return CliRunner().invoke(doctor, [*files, *options], env={"COLUMNS": "100"}, catch_exceptions=False)


def test_a_healthy_machine_gives_its_stack_and_no_finding(tmp_path: Path) -> None:
    result = invoke(tmp_path, "a2-8.5")
    assert result.exit_code == 0
    for said in ("Ascend910B3", "25.5.1", "7.8.0.5.216", "8.5.0", "2.9.0+cpu", "nothing wrong was found"):
        assert said in result.output


def test_a_broken_machine_says_what_why_and_what_to_do(tmp_path: Path) -> None:
    result = invoke(tmp_path, "torch-npu-of-another-cann")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "torch_npu 2.1.0.post10 does not belong to CANN 8.5.0" in said
    assert "torch 2.9.0 + torch_npu 2.9.0 + CANN 8.5.0" in said
    assert "torch 2.1.0 + torch_npu 2.1.0.post17 + CANN 8.3.RC1" in said


def test_what_was_seen_is_told_first_and_named_once() -> None:
    finding = Finding(id="a.b", severity="error", what="what", evidence=("one", "two"), why="because", remedy="mend it")
    assert list(_lines(finding)) == [("seen", "one"), ("", "two"), ("why", "because"), ("do", "mend it")]


@pytest.mark.parametrize(("used", "said"), [(-1, ""), (0, ", 0 of 65536 MB used"), (1, ", 1 of 65536 MB used")])
def test_a_row_of_npu_smi_tells_the_memory_in_use_where_that_is_known(used: int, said: str) -> None:
    chip = Chip(npu=3, name="910B3", health="OK", memory_used_mb=used, memory_total_mb=65536)
    assert _row(chip) == f"npu-smi info: NPU 3, 910B3, bus unknown{said}"


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    assert invoke(tmp_path, "warning").exit_code == 0


def test_no_foreign_control_character_reaches_the_terminal(tmp_path: Path) -> None:
    result = invoke(tmp_path, "escape-sequences")
    assert not set(result.output) & {"\x1b", "\x07", "\u202e"}


def test_json_has_everything(tmp_path: Path) -> None:
    said = json.loads(invoke(tmp_path, "mixed-8.2", "--json").output)
    assert said["findings"][0]["id"] == "cann.mixed"
    assert {"machine", "components", "findings", "settings", "devices", "judged_by"} == said.keys()
    assert all(each["evidence"] for each in said["components"] if each["version"])


@pytest.mark.parametrize(
    "options", [["--environ=x"], ["--npu-smi=x"], ["--root=/nowhere"], ["--root=/", "--environ=/nowhere"]]
)
def test_options_that_make_no_sense_are_refused(options: list[str]) -> None:
    with pytest.raises(UsageError):
        CliRunner().invoke(doctor, options, catch_exceptions=False)
