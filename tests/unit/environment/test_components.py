"""Versions from the files of installers, in the forms that were seen in the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.environment.evidence import Evidence
from pytest_ascend.environment.machine import Machine, copied_machine, installed
from pytest_ascend.environment.npu_smi import NpuSmi
from pytest_ascend.environment.stack import Component, collect, gather, homes, same
from pytest_ascend.records.case import OPTIONAL

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


def machine(root: Path, files: dict[str, str], environ: dict[str, str] | None = None) -> Machine:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return copied_machine(root, environ or {}, None)


def versions(where: Machine) -> dict[str, str]:
    home = next(iter(homes(where)), None)
    return {name: each.version for name, each in gather(where, home, {}, NpuSmi()).items() if each.version}


def test_the_install_record_is_the_best_evidence(tmp_path: Path) -> None:
    files = {"cann/aarch64-linux/ascend_toolkit_install.info": INSTALL_INFO, "cann/version.cfg": VERSION_CFG}
    where = machine(tmp_path, files, {"ASCEND_HOME_PATH": "/cann"})
    assert versions(where)["CANN toolkit"] == "8.3.RC1"


def test_the_public_number_is_read_from_version_cfg(tmp_path: Path) -> None:
    where = machine(tmp_path, {"usr/local/Ascend/ascend-toolkit/latest/version.cfg": VERSION_CFG})
    assert versions(where) == {"CANN toolkit": "8.0.0", "CANN runtime": "8.0.0"}


def test_the_process_uses_what_its_variable_names(tmp_path: Path) -> None:
    files = {
        "usr/local/Ascend/cann/version.cfg": VERSION_CFG,
        "mine/version.cfg": VERSION_CFG.replace("8.0.0", "8.5.0"),
    }
    assert versions(machine(tmp_path, files, {"ASCEND_HOME_PATH": "/mine"}))["CANN toolkit"] == "8.5.0"


def test_a_machine_without_cann_has_no_version(tmp_path: Path) -> None:
    assert versions(machine(tmp_path, {}, {"ASCEND_HOME_PATH": "/gone"})) == {}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=25.5.1\nascendhal_version=7.35.23\npackage_version=25.5.2\n", "25.5.2"),
        ("Version=23.0.6\nascendhal_version=7.35.19\n", "23.0.6"),
        ("nothing of use\n", None),
        ("Version=\x1b[31m25.5.1\n", None),
    ],
)
def test_the_drivers_package_version_counts_where_there_is_one(tmp_path: Path, text: str, version: str | None) -> None:
    where = machine(tmp_path, {"usr/local/Ascend/driver/version.info": text})
    assert versions(where).get("driver") == version


def test_an_internal_number_is_never_compared_with_a_public_one() -> None:
    said = (Evidence("CANN runtime", "7.6.0.1.220", "a", internal=True), Evidence("CANN runtime", "8.0.0", "b"))
    runtime = Component("CANN runtime", said)
    assert runtime.version == "8.0.0"
    assert runtime.disagreeing == ()


def test_the_ending_of_a_build_is_no_other_version() -> None:
    assert same("2.8.0+cpu", "2.8.0")
    assert same("25.0.RC1", "25.0.rc1")
    assert not same("2.8.0", "2.8.0.post1")


def test_metadata_is_found_below_another_root(tmp_path: Path) -> None:
    folder = "usr/local/lib/python3.11/site-packages/torch_npu-2.8.0.post1.dist-info"
    where = machine(tmp_path, {f"{folder}/METADATA": "Name: torch-npu\nVersion: 2.8.0.post1\n"})
    assert installed(where, frozenset({"torch-npu"}))["torch-npu"].version == "2.8.0.post1"


def test_a_stack_names_what_is_on_the_machine(tmp_path: Path) -> None:
    files = {
        "usr/local/Ascend/cann/aarch64-linux/ascend_toolkit_install.info": INSTALL_INFO,
        "usr/local/Ascend/driver/version.info": "Version=25.5.1\n",
        "usr/local/Ascend/firmware/version.info": "Version=7.8.0.5.216\npackage_version=25.5.1\n",
    }
    stack = collect("npu", emulated=False, chip="Ascend910B3", machine=machine(tmp_path, files))
    assert (stack.cann, stack.driver, stack.firmware) == ("8.3.RC1", "25.5.1", "7.8.0.5.216")


def test_a_stack_without_the_drivers_file_names_what_npu_smi_says(tmp_path: Path) -> None:
    machine = copied_machine(tmp_path, {}, "| npu-smi 25.5.1    Version: 25.5.2   |\n")
    assert collect("npu", emulated=False, chip="Ascend910B3", machine=machine).driver == "25.5.2"


LIBRARIES = {
    "usr/local/Ascend/nnal/atb/latest/version.info": "    Ascend-cann-atb Version : 8.5.0\n    Platform : aarch64\n",
    **{
        f"usr/lib/python3.11/site-packages/{name}-{version}.dist-info/METADATA": f"Name: {name}\nVersion: {version}\n"
        for name, version in (
            ("triton_ascend", "3.2.2"), ("vllm_ascend", "0.11.0rc2.dev12+g1a2b3c4"), ("sgl_kernel_npu", "2026.2.1"),
            ("light_vllm_ascend_security", "1.0.1"),
        )
    },
}  # fmt: skip


def test_a_stack_names_the_libraries_that_compute_beside_torch_npu(tmp_path: Path) -> None:
    where = machine(tmp_path, LIBRARIES)

    def named(device: str, *, emulated: bool = False) -> tuple[str, ...]:
        stack = collect(device, emulated=emulated, chip="Ascend910B3", machine=where)
        return tuple(str(getattr(stack, name)) for name in OPTIONAL)

    packages = ("3.2.2", "0.11.0rc2.dev12+g1a2b3c4", "2026.2.1")
    assert named("npu") == ("8.5.0", *packages)
    assert named("npu", emulated=True) == ("", *packages)  # no ATB but the emulated one
    assert named("cpu") == ("", "", "", "")


def test_atb_is_found_from_its_variable(tmp_path: Path) -> None:
    files = {
        "opt/nnal/atb/8.3.0/version.info": "Ascend-cann-atb Version : 8.3.0\n",
        "opt/nnal/atb/8.3.0/atb/cxx_abi_1/lib": "",
    }
    environ = {"ATB_HOME_PATH": "/opt/nnal/atb/8.3.0/atb/cxx_abi_1"}
    assert versions(machine(tmp_path, files, environ))["NNAL (ATB)"] == "8.3.0"
