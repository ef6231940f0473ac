"""Faults at random in operators at random, and devices that are right: the short forms of two benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in a process of its own, which the emulated device needs."""
    command = [sys.executable, str(ROOT / "tools" / script), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_faults_at_random_are_noticed(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    done = run("operator_faults.py", "--faults=50", "--operators=25", "--seed=7", f"--json={found}")
    assert done.returncode == 0, done.stderr
    visible = [each for each in json.loads(found.read_text()) if each["effects"]]
    noticed = [each for each in visible if each["case"]]
    assert len(visible) == 50
    assert len(noticed) >= 45, done.stdout
    # What is said is that of a judge, or of the device: nothing breaks in between.
    assert not [
        each
        for each in noticed
        if not each["complaint"].startswith(("Disagreement", "WrongCall", "RuntimeError", "Assert"))
    ]


def test_a_chip_is_accused_of_nothing() -> None:
    done = run("operator_numerics.py", "chip:3", "--part=2/9")
    assert done.returncode == 0, done.stdout + done.stderr
