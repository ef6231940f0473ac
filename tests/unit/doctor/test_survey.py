"""What the doctor does beside looking at files: it asks npu-smi, and knows the emulated device for what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ascend.doctor import examine
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.compatibility import load
from pytest_ascend.environment.machine import Machine, copied_machine, this_machine
from pytest_ascend.system.programs import run

from .trees import NEW, build, sourced


def tool(folder: Path, script: str) -> dict[str, str]:
    path = folder / "npu-smi"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def ids(machine: Machine) -> list[str]:
    return [each.id for each in examine(machine).findings]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'dcmi module initialize failed. ret is -8005'; exit 255", "ret is -8005"),
        ("kill -9 $$", "ended with code -9"),
    ],
)
def test_an_npu_smi_that_fails_is_a_finding(tmp_path: Path, script: str, said: str) -> None:
    findings = examine(this_machine(tool(tmp_path, script), limit_s=5)).findings
    (finding,) = [each for each in findings if each.id == "npu-smi.failed"]
    assert said in finding.evidence[0]


def test_an_npu_smi_that_takes_long_is_not_called_broken(tmp_path: Path) -> None:
    findings = examine(this_machine(tool(tmp_path, "exec sleep 60"), limit_s=0.2)).findings
    assert [each.id for each in findings if each.id.startswith("npu-smi")] == ["npu-smi.late"]


def test_a_program_that_cannot_be_killed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    monkeypatch.setattr("pytest_ascend.system.programs._KILLED_S", 0.05)
    assert run(["sleep", "0.6"], dict(os.environ), 0.05).late


def test_a_program_that_cannot_be_started_is_no_error(tmp_path: Path) -> None:
    assert run([str(tmp_path / "gone")], {}, 1).failure.startswith("cannot be started")


def test_the_emulated_device_is_no_npu(tmp_path: Path) -> None:
    environ = {**sourced(NEW), "PYTEST_ASCEND_EMULATED": "1"}
    assert ids(copied_machine(tmp_path, environ, None)) == ["ascend.absent", "emulated"]


def test_what_would_abort_on_an_npu_is_told(tmp_path: Path) -> None:
    environ = {"PYTEST_ASCEND_EMULATED": "1", "PYTEST_ASCEND_EMULATED_CLASH": "1"}
    found = examine(copied_machine(tmp_path, environ, None)).findings
    (finding,) = [each for each in found if each.id == "emulated"]
    assert finding.evidence[1] == "torch was built with CUDA: on an NPU, this torch_npu would abort beside it"


def test_a_file_that_the_user_may_not_read_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, {"usr/local/Ascend/driver/version.info": "Version=25.5.1\n"})
    opened = os.open

    def refuse(path: object, *rest: int) -> int:
        if str(path).endswith("version.info"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    assert "file.unreadable" in ids(copied_machine(tmp_path, {}, None))


def test_the_users_groups_count(tmp_path: Path) -> None:
    build(tmp_path, {"dev/davinci0": "", "usr/local/Ascend/driver/version.info": "Version=25.5.1\n"})
    (tmp_path / "dev/davinci0").chmod(0o660)
    group = (tmp_path / "dev/davinci0").stat().st_gid
    machine = copied_machine(tmp_path, {}, None)
    for groups, refused in ((frozenset({group}), False), (frozenset({54321}), True)):
        user = replace(machine, uid=54321, groups=groups)
        assert ("devices.permission" in ids(user)) is refused


def test_of_an_endless_library_path_only_the_first_512_entries_are_looked_at(tmp_path: Path) -> None:
    entries = [f"/folder{number}" for number in range(600)]
    machine = copied_machine(tmp_path, {"LD_LIBRARY_PATH": ":".join(entries)}, None)
    assert Survey(machine, load()).library_path == tuple(entries[:512])


def test_the_doctor_loads_no_torch() -> None:
    program = "import sys; from pytest_ascend.doctor import examine; from pytest_ascend.environment.machine import "
    program += (
        "this_machine; examine(this_machine()); sys.exit(bool({'torch', 'torch_npu', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
