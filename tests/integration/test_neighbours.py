"""Beside pytest-benchmark, pytest-html and JUnit's XML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run


def test_what_pytest_benchmark_measures_is_kept_with_the_case(
    ascend: Run, pytester: pytest.Pytester, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    pytester.makepyfile("def test_x(npu_device, benchmark):\n    benchmark(sum, [1, 2])\n")
    assert ascend("--benchmark-max-time=0.001").ret == 0
    measured = lines("record")[0]["measurements"]
    assert measured["latency_median_us"] > 0
    assert measured["rounds"] >= 1


def test_a_benchmark_that_is_turned_off_measured_nothing(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_x(npu_device, benchmark):\n    benchmark(sum, [1, 2])\n")
    assert ascend("--benchmark-disable").ret == 1


def test_their_reports_are_written_beside_ours(ascend: Run, three_cases: Path, pytester: pytest.Pytester) -> None:
    ascend("--html=theirs.html", "--self-contained-html", "--junitxml=theirs.xml")
    assert "test_fails" in (pytester.path / "theirs.html").read_text()
    assert "test_raises" in (pytester.path / "theirs.xml").read_text()
    assert (pytester.path / "ascend-report/conformance.html").exists()
