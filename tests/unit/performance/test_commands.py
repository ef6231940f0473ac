"""A baseline is recorded from runs that are each a process of its own."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pytest_ascend.errors import UsageError
from pytest_ascend.performance import commands


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, *, writes: bool) -> tuple[list[Path], list[list[str]]]:
    """Measure three times by a program that only writes a log, or says why not."""
    asked: list[list[str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        asked.append(command)
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in env
        (report,) = (each.partition("=")[2] for each in command if each.startswith("--ascend-report="))
        Path(report).mkdir()
        if writes:
            Path(report, commands.LOG).touch()
        return SimpleNamespace(stderr="", stdout="a\nb\nc\nno device\n")

    monkeypatch.setattr(commands.subprocess, "run", run)
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    return list(commands._measure(folder, 3, ["--ascend-level=smoke"], Console(file=io.StringIO()))), asked


def test_each_run_has_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, asked = measured(tmp_path, monkeypatch, writes=True)
    assert logs == [tmp_path / str(number) / commands.LOG for number in (1, 2, 3)]
    assert all("--ascend" in each and each[-1] == "--ascend-level=smoke" for each in asked)


def test_a_run_that_measured_nothing_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="run 1 measured nothing: b / c / no device"):
        measured(tmp_path, monkeypatch, writes=False)
