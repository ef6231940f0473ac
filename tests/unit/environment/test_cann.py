"""Versions from the files of installers, in the forms that were seen in the field."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pytest_ascend.environment.cann import cann_version, driver_version, firmware_version

INSTALL_INFO = """package_name=Ascend-cann-toolkit
version=8.3.RC1
innerversion=V100R001C23SPC001B231
compatible_version=[V100R001C15],[V100R001C17]
"""
VERSION_CFG = """# version: 1.0
runtime_running_version=[7.6.0.1.220:8.0.0]
runtime_installed_version=[7.5.0.5.220:8.0.RC3][7.6.0.1.220:8.0.0]
toolkit_running_version=[7.6.0.1.220:8.0.0]
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_install_record_is_the_best_evidence(tmp_path: Path) -> None:
    home = tmp_path / "cann"
    write(home / f"{platform.machine()}-linux/ascend_toolkit_install.info", INSTALL_INFO)
    write(home / "version.cfg", VERSION_CFG)
    assert cann_version({"ASCEND_HOME_PATH": str(home)}, tmp_path) == "8.3.RC1"


def test_the_public_number_is_read_from_version_cfg(tmp_path: Path) -> None:
    write(tmp_path / "usr/local/Ascend/ascend-toolkit/latest/version.cfg", VERSION_CFG)
    assert cann_version({}, tmp_path) == "8.0.0"


def test_the_process_uses_what_its_variable_names(tmp_path: Path) -> None:
    write(tmp_path / "usr/local/Ascend/cann/version.cfg", VERSION_CFG)
    write(tmp_path / "mine/version.cfg", VERSION_CFG.replace("8.0.0", "8.5.0"))
    assert cann_version({"ASCEND_HOME_PATH": str(tmp_path / "mine")}, tmp_path) == "8.5.0"


def test_a_machine_without_cann_has_no_version(tmp_path: Path) -> None:
    assert cann_version({"ASCEND_HOME_PATH": str(tmp_path / "gone")}, tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=25.5.1\nascendhal_version=7.35.23\npackage_version=25.5.2\n", "25.5.2"),
        ("Version=23.0.6\nascendhal_version=7.35.19\n", "23.0.6"),
        ("nothing of use\n", ""),
    ],
)
def test_the_drivers_package_version_counts_where_there_is_one(tmp_path: Path, text: str, version: str) -> None:
    write(tmp_path / "usr/local/Ascend/driver/version.info", text)
    assert driver_version(tmp_path) == version


def test_firmware_that_a_container_does_not_see_is_unknown(tmp_path: Path) -> None:
    assert firmware_version(tmp_path) == ""
