"""The short form of the evaluation ``survival``: runs with faults and kills end, and know what they knew."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import AT_START

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("torch_npu"), reason="needs torch_npu")


@pytest.mark.drawn(4, "long")
def test_runs_survive_faults_and_kills() -> None:
    command = [
        sys.executable,
        "-m",
        "tools.evaluation",
        "survival",
        "--faults=2",
        "--kills=3",
        "--disturbances=0",
        "--seed=3",
    ]
    environment = dict(AT_START)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = ("2 runs with a fault", "3 runs with a kill")
    assert "; ".join(f"{each}, 0 wrong" for each in said) in done.stdout
