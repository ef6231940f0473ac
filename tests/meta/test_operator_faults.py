"""Faults at random in operators at random, and devices that are right: the short forms of two benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in a process of its own, which the emulated device needs."""
    command = [sys.executable, "-m", "tools.evaluation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.drawn(4, "long")
def test_faults_at_random_are_noticed(tmp_path: Path) -> None:
    few = [f"--operator={name}" for name in ("add", "sum")]
    done = run(
        "operator-faults",
        f"--results={tmp_path}",
        "--faults=12",
        "--seed=5",
        "--explore=0",
        "--level=standard",
        *few,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "faults-5-0.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [each for each in lines if each["level"] != "crashed"]  # which stands only where a process ended
    visible = [each for each in rows if each["shown"]]
    assert len(rows) == 12
    assert len(visible) >= 3
    noticed = [each for each in visible if each["level"] in {"smoke", "standard", "full"}]
    assert len(noticed) >= 0.8 * len(visible), done.stdout
    # What is said is that of a judge, or of the device: nothing breaks in between.
    assert not [
        each
        for each in noticed
        if not each["complaint"].startswith(("Disagreement", "WrongCall", "RuntimeError", "Assert"))
    ]
    again = run("operator-faults", f"--results={tmp_path}", "--faults=12", "--seed=5", "--minutes=0")
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]  # nothing is tried twice


def test_a_chip_is_accused_of_nothing() -> None:
    done = run("devices", "--chips=1", "--seed=3", "--", "suites/ops", "--ascend-level=smoke", "--ascend-shard=2/40")
    assert done.returncode == 0, done.stdout + done.stderr
