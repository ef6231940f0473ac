"""Runs pytest in pytest, on the CPU as the device: the fastest one that computes."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AT_START
from tests.forks import apart

#: pytester forgets modules that a run in its own process imported, and these do not bear to be imported twice.
KEPT = (
    "pytest_ascend.golden.store",
    "pytest_ascend.plugin.hooks",
    "pytest_ascend.precision",
    "pytest_ascend.page.html",
    "pytest_ascend.run.case_context",
    "pytest_ascend.run.inputs",
    "pytest_ascend.run.reference",
    "safetensors.torch",
    "scipy.special",
)
for name in KEPT:
    importlib.import_module(name)

Run = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def as_pytest_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the emulated device activate it in this process; what is started here must not inherit it."""
    for name in set(os.environ) - set(AT_START):
        monkeypatch.delenv(name)
    for name, value in AT_START.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def ascend(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the tests in the folder of the test with ``--ascend``, on the CPU if nothing else is said.

    ``paths`` are other tests to run; none stands for the bundled suites.
    """
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str, device: str = "cpu", paths: Sequence[str] = (".",)) -> pytest.RunResult:
        return pytester.runpytest_inprocess("--ascend", f"--ascend-device={device}", *arguments, *paths)

    return run


@pytest.fixture
def ascend_apart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``pytest --ascend`` in a fork, on the device that it chooses or is told."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return lambda *arguments: apart(pytester, "--ascend", *arguments, ".")


@pytest.fixture
def ascend_started(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``pytest --ascend`` as users start it, in a process that has imported nothing."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("--ascend", *arguments, ".")

    return run


@pytest.fixture
def lines(pytester: pytest.Pytester) -> Callable[..., list[dict[str, Any]]]:
    """Return the lines of the run log, all of them or those of one type."""

    def read(kind: str = "", folder: str = "ascend-report") -> list[dict[str, Any]]:
        text = Path(pytester.path, folder, "run.jsonl").read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines()]
        return [line for line in found if kind in ("", line["type"])]

    return read


@pytest.fixture
def outcomes(lines: Callable[..., list[dict[str, Any]]]) -> Callable[[], dict[str, str]]:
    """Return the outcome of each test by its name."""
    return lambda: {line["node_id"].split("::")[-1]: line["outcome"] for line in lines("record")}


@pytest.fixture
def three_cases(pytester: pytest.Pytester) -> Path:
    """Make a file with a case that passes, one that fails and one that raises."""
    return pytester.makepyfile(
        test_three="""
        import torch

        def test_passes(npu_device, precision_compare):
            precision_compare(torch.ones(3).to(npu_device).cpu(), torch.ones(3, dtype=torch.float64))

        def test_fails(npu_device, precision_compare):
            precision_compare(torch.ones(3).to(npu_device).cpu(), torch.zeros(3, dtype=torch.float64))

        def test_raises(npu_device):
            raise RuntimeError("something odd")
        """
    )
