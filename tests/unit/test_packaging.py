"""Installing pytest-ascend leaves torch and torch_npu as they are; a release is checked before it is published."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from pytest_ascend import __version__

ROOT = Path(__file__).resolve().parents[2]
PIP = [getattr(sys, "_base_executable", sys.executable), "-m", "pip"]
#: Without the machine's own indexes and constraints.
BARE = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
BARE["PIP_CONFIG_FILE"] = os.devnull


def stub(folder, name, version, requires=()):
    """Write a wheel with nothing but metadata."""
    stem = f"{re.sub(r'[-.]+', '_', name)}-{version}"
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {"METADATA": "\n".join(lines) + "\n", "WHEEL": wheel, "RECORD": "", "INSTALLER": "stub\n"}
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(f"{stem}.dist-info/{file}", text)
    return folder / f"{stem}-py3-none-any.whl"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder with pytest-ascend as it declares itself, all that it needs, and a torch that is newer than any."""
    folder = tmp_path_factory.mktemp("index")
    declared = importlib.metadata.requires("pytest-ascend")
    stub(folder, "pytest-ascend", __version__, declared)
    stub(folder, "torch", "99.0")
    for each in map(Requirement, declared):
        if each.name not in {"torch", "torch-npu"} and each.marker is None:
            stub(folder, each.name, "999.0")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    if subprocess.run([*PIP, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("needs pip")
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([PIP[0], "-m", "venv", "--without-pip", folder], check=True)
    return folder


def planned(environment, index, tmp_path, torch):
    """Return what pip would install beside a torch of this version: names and versions."""
    site = next(environment.glob("lib/python*/site-packages"))
    for old in site.glob("torch-*"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    zipfile.ZipFile(stub(tmp_path, "torch", torch)).extractall(site)
    command = [*PIP, "--python", environment / "bin" / "python", "install", "--dry-run", "--quiet", "--no-index"]
    command += ["--find-links", index, "--report", tmp_path / "report.json", "pytest-ascend"]
    ran = subprocess.run(command, env=BARE, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    return {each["metadata"]["name"]: each["metadata"]["version"] for each in report["install"]}


@pytest.mark.parametrize("torch", ["2.1.0+cpu", "2.14.0.dev20260901"])
def test_an_installed_torch_is_left_alone(environment, index, tmp_path, torch):
    plan = planned(environment, index, tmp_path, torch)
    assert plan["pytest-ascend"] == __version__
    assert "torch" not in plan


def test_a_torch_that_is_too_old_would_be_replaced_so_this_test_can_fail(environment, index, tmp_path):
    assert planned(environment, index, tmp_path, "1.13.1")["torch"] == "99.0"


def test_the_wheel_declares_no_torch_npu():
    needed = [Requirement(each) for each in importlib.metadata.requires("pytest-ascend")]
    assert not [each for each in needed if each.name.startswith("torch-") and each.marker is None]
    (torch,) = (each for each in needed if each.name == "torch" and each.marker is None)
    assert not [each for each in torch.specifier if each.operator != ">="], "no pin and no upper bound"


def test_a_release_is_checked_attested_and_has_the_version_of_its_tag(tmp_path):
    jobs = YAML(typ="safe").load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    steps = jobs["build"]["steps"]
    assert any("twine check --strict" in step.get("run", "") for step in steps)
    assert any(step.get("uses", "").startswith("actions/attest-build-provenance@") for step in steps)
    assert jobs["build"]["permissions"]["attestations"] == "write"
    assert jobs["publish"]["needs"] == "build"
    (check,) = (step["run"] for step in steps if "TAG" in step.get("env", {}))
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"pytest_ascend-{__version__}.tar.gz").touch()
    for tag, code in ((f"v{__version__}", 0), ("v999.0", 1)):
        ran = subprocess.run(
            ["bash", "-e", "-c", check], cwd=tmp_path, env={"TAG": tag, "PATH": "/bin:/usr/bin"}, check=False
        )
        assert ran.returncode == code, tag
