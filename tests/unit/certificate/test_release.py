"""What judges is known by its bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_ascend.certificate.release import altered_goldens, installed, used
from pytest_ascend.system.bundled import folder


def test_a_run_with_what_is_bundled_uses_the_release() -> None:
    bundled = folder("baselines")
    files = [bundled / "expectations.json"]
    assert used(folder("suites"), bundled, files) == installed().hashes()


def test_expectations_of_ones_own_are_another_judge(tmp_path: Path) -> None:
    bundled = folder("baselines")
    mine = tmp_path / "mine.json"
    mine.write_text("{}", encoding="utf-8")
    hashes = used(folder("suites"), bundled, [bundled / "expectations.json", mine])
    assert hashes["expectations"] != installed().hashes()["expectations"]


def test_the_rules_are_every_source_file_of_judges_and_suites() -> None:
    rules = json.loads(installed().parts["rules"])
    assert {"pytest_ascend/precision/error_model.py", "suites/ops/__init__.py"} <= set(rules)
    assert not [name for name in rules if "__pycache__" in name or name.startswith("pytest_ascend/suites")]


def test_a_flipped_bit_in_a_golden_is_found_and_named(tmp_path: Path) -> None:
    source = folder("baselines") / "golden"
    manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
    name = sorted(manifest["goldens"])[-1]
    for golden in manifest["goldens"]:
        (tmp_path / f"{golden}.safetensors").parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / f"{golden}.safetensors", tmp_path / f"{golden}.safetensors")
    path = tmp_path / f"{name}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (problem,) = altered_goldens(tmp_path, (source / "manifest.json").read_bytes())
    assert problem.path == str(path)


@pytest.mark.parametrize("manifest", [b"", b"{}", b"\xff"])
def test_a_damaged_manifest_is_named(tmp_path: Path, manifest: bytes) -> None:
    (problem,) = altered_goldens(tmp_path, manifest)
    assert "manifest.json" in str(problem)
