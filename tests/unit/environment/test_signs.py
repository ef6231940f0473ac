"""Signs of Ascend: each kind alone is enough, and what the emulated device sets for itself is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.environment.signs import Sign, signs


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("dev/davinci0", "device file"),
        ("dev/davinci_manager", "device file"),
        ("dev/devmm_svm", "device file"),
        ("usr/local/Ascend/driver", "Ascend software"),
        ("usr/local/Ascend/cann", "Ascend software"),
        ("etc/ascend_install.info", "record of an installed driver"),
    ],
)
def test_a_file_is_a_sign(tmp_path: Path, path: str, what: str) -> None:
    (tmp_path / path).mkdir(parents=True)
    assert signs({}, tmp_path) == (Sign(what, str(tmp_path / path)),)


def test_a_machine_without_any_has_none(tmp_path: Path) -> None:
    assert signs({"HOME": str(tmp_path), "PATH": str(tmp_path)}, tmp_path) == ()


def test_a_variable_is_a_sign_even_if_it_is_empty(tmp_path: Path) -> None:
    assert signs({"ASCEND_RT_VISIBLE_DEVICES": ""}, tmp_path) == (
        Sign("environment variable", "ASCEND_RT_VISIBLE_DEVICES="),
    )


def test_what_the_emulated_device_sets_is_no_sign(tmp_path: Path) -> None:
    assert signs({"ASCEND_HOME_PATH": "/cache", "PYTEST_ASCEND_EMULATED": "1"}, tmp_path) == ()


def test_a_device_file_counts_beside_an_emulated_device(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").touch()
    assert len(signs({"ASCEND_HOME_PATH": "/cache", "PYTEST_ASCEND_EMULATED": "1"}, tmp_path)) == 1


def test_cann_in_a_home_folder_is_a_sign(tmp_path: Path) -> None:
    (tmp_path / "home/Ascend").mkdir(parents=True)
    assert [sign.what for sign in signs({"HOME": str(tmp_path / "home")}, tmp_path)] == ["Ascend software"]


def test_the_drivers_tool_is_a_sign(tmp_path: Path) -> None:
    tool = tmp_path / "npu-smi"
    tool.touch(mode=0o755)
    assert signs({"PATH": str(tmp_path)}, tmp_path) == (Sign("driver tool", str(tool)),)
