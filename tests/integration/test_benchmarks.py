"""Benchmarks in a run: pytest-benchmark shows and stores them, a baseline judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forks import apart, run

#: Without a path, the bundled suites would run.
OWN = "test_own.py"
TEST = """
    import torch

    def test_gelu(ascend_benchmark):
        def prepared(device):
            x = torch.ones(256, 256, device=device)
            return lambda: torch.nn.functional.gelu(x)
        ascend_benchmark(prepared)
"""


@pytest.fixture(autouse=True)
def as_users_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_pytest_benchmark_stores_what_was_measured(pytester: pytest.Pytester, device: str) -> None:
    pytester.makepyfile(test_own=TEST)
    result = apart(pytester, "--ascend", OWN, f"--ascend-device={device}", "--benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    (stored,) = json.loads(Path("out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert stored["name"] == "test_gelu"
    assert stored["stats"]["rounds"] >= 5
    assert stored["extra_info"]["calls_per_round"] >= 1


def test_benchmark_disable_measures_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=TEST)
    result = apart(pytester, "--ascend", OWN, "--ascend-device=cpu", "--benchmark-disable")
    result.assert_outcomes(skipped=1)


def test_a_baseline_needs_several_runs_and_one_recorded_with_other_settings_is_shown_and_said(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_own=TEST)
    apart(pytester, "--ascend", OWN, "--ascend-device=cpu").assert_outcomes(passed=1)
    pytester.mkdir("baselines")
    recording = ("pytest_ascend.cli", "baseline", "record", "--baselines=baselines")
    few = run(*recording, "ascend-report", where=pytester.path)
    assert few.returncode == 4
    assert few.stderr.startswith("ERROR: 1 runs are too few for a baseline\n  hint: record at least 3")
    # One log thrice: how much runs differ is no matter here.
    assert run(*recording, *["ascend-report"] * 3, where=pytester.path).returncode == 0

    def message() -> str:
        apart(pytester, "--ascend", OWN, "--ascend-device=cpu", "--ascend-baselines=baselines")
        lines = map(json.loads, Path("ascend-report/run.jsonl").read_text(encoding="utf-8").splitlines())
        (record,) = (line for line in lines if line["type"] == "record")
        assert len(record["series"]["baseline_latency_us"]) == 101
        return str(record["verdicts"][0]["message"])

    same = message()
    assert same.startswith("compared with the baseline of exactly this combination")
    assert "shown only" not in same
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "shown only: it was recorded with other settings: OMP_NUM_THREADS not set then, 3 now" in message()
