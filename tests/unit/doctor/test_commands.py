"""The command: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_ascend.doctor.commands import doctor
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
    assert "nothing wrong was found" in result.output


def test_npu_smi_is_not_waited_for_without_an_end(tmp_path: Path) -> None:
    program = tmp_path / "npu-smi"
    program.write_text("#!/bin/sh\necho it speaks\n", encoding="utf-8")
    program.chmod(0o755)
    result = CliRunner().invoke(doctor, ["--wait=inf", "--json"], env={"PATH": f"{tmp_path}:/bin"})
    assert json.loads(result.output)["machine"].startswith("this machine"), result.exception


PAGE = """
chip              Ascend910B3                npu-smi info
driver            25.2.0                     1 disagree  npu-smi info
firmware          7.8.0.5.216                .../firmware/version.info
CANN toolkit      8.5.0                      .../aarch64-linux/ascend_toolkit_install.info
CANN ops          8.5.0                      .../aarch64-linux/ascend_ops_install.info
CANN runtime      8.5.0                      .../runtime/version.info
CANN hccl         8.5.0                      .../hccl/version.info
torch             2.9.0+cpu                  .../torch-2.9.0+cpu.dist-info/METADATA and 1 more
torch_npu         2.9.0                      .../torch_npu-2.9.0.dist-info/METADATA and 1 more
torch_npu commit  0123456789ab               .../torch_npu/version.py
Python            3.11                       .../python3.11/site-packages
OS                openEuler 22.03 (LTS-SP4)  /etc/os-release
architecture      aarch64                    the name of its dynamic loader
devices           8                          health: 8 OK
not found: CANN compiler, CANN opp, CANN opp_kernel, NNAL (ATB)

WARNING  sources disagree on the version of driver  [version.disagreement]
  seen  npu-smi info: 25.2.0
        /usr/local/Ascend/driver/version.info: 25.5.1
  why   One of the places is out of date: an update that did not finish, or two installations.
  do    find out which is used; reinstall the component

WARNING  driver 25.2.0 is older than those that CANN 8.5.0 was released with  [driver.older]
  seen  npu-smi info: driver 25.2.0
        CANN 8.5.0 was released with 25.5.1 (hicann/release-management 8.5.0/release-notes.md)
  why   CANN may call functions that the driver lacks.
  do    upgrade firmware and driver to one of the listed releases

2 warnings. Judged by"""


def test_the_page_names_each_version_with_its_place_then_each_finding(tmp_path: Path) -> None:
    page = invoke(tmp_path, "driver-not-rebooted").output
    # In an editable installation the path of the table may be long: what is before it is the doctor's own.
    lines = [line.rstrip() for line in page.partition(" compatibility.json")[0].splitlines()]
    assert lines[0].startswith("pytest-ascend doctor: the files below")
    assert "\n".join(lines[lines.index("") :]) == PAGE


def test_a_broken_machine_says_what_why_and_what_to_do(tmp_path: Path) -> None:
    result = invoke(tmp_path, "torch-npu-of-another-cann")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "torch_npu 2.1.0.post10 does not belong to CANN 8.5.0" in said
    assert "combinations: torch 2.1.0 + torch_npu 2.1.0.post10 + CANN 8.0.0" in said


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
