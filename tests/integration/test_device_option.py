"""``--ascend-device``: the right device, or one clear message and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run


def test_the_device_is_named_at_the_top_and_in_the_log(
    ascend: Run, three_cases: Path, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    result = ascend()
    result.stdout.fnmatch_lines(["ascend: cpu (*", "*says nothing about any NPU*"])
    assert lines("header")[0]["stack"]["device"] == "cpu"


def test_an_unknown_device_is_one_message(ascend: Run, three_cases: Path) -> None:
    result = ascend(device="gpu")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --ascend-device=gpu: there is no such device", "*hint: give auto, npu*"])
    assert "Traceback" not in str(result.stderr)


def test_a_gpu_that_is_not_there_ends_with_the_code_for_devices(ascend_apart: Run, three_cases: Path) -> None:
    result = ascend_apart("--ascend-device=cuda:7")
    assert result.ret == 6
    result.stderr.fnmatch_lines(["ERROR: cuda:7 was asked for*"])
    assert "Traceback" not in str(result.stderr)


def test_an_empty_cann_folder_stops_the_run_and_is_named(
    ascend_apart: Run, three_cases: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ASCEND_EMULATED", raising=False)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(pytester.mkdir("empty")))
    result = ascend_apart()
    assert result.ret == 6
    result.stderr.fnmatch_lines(
        [
            "ERROR: this machine shows signs of Ascend*",
            "*found: ASCEND_HOME_PATH=*",
            "*failed: *",
            "*doctor: *[[]cann.home-gone]",
            "*hint: *",
        ]
    )
    assert "Traceback" not in str(result.stderr)
    assert not (pytester.path / "ascend-report").exists()


def test_the_device_is_up_before_a_conftest_imports_torch(
    ascend_started: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where torch_npu is installed without CANN, this import fails unless torch is told not to load it.
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    pytester.makeconftest("import torch")
    pytester.makepyfile("def test_x(npu_device, ascend_measure):\n    ascend_measure('a_us', 1)\n")
    ascend_started("--ascend-device=cpu").assert_outcomes(passed=1)
