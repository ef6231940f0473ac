"""An emulated device can be faulty in each way that the protection against faulty devices is made for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import AT_START

#: Fault -> how a process that adds three times ends: its exit code (negative for a signal) and what it says.
ENDS = {
    "slow:seconds=0": r"0 right \[True, True, True\]",
    "crash:operator=Adds:after=1": "-11 ",
    "crash:by=abort": "-6 ",
    "crash:by=kill": "-9 ",
    "hang:gil=held": "1 $",
    "hang:gil=released": "1 $",
    "poison": r"0 right \[False, False, False\]",
    "oom:after=1": "0 .*out of memory",
    "late:after=1": "0 .*507015",
    "lost:after=1": "0 .*507010",
    "slow:seconds=0.8": "0 slow",
    "nondeterministic:operator=Adds": r"0 right \[False, False, False\]",
    "noisy": "0 2 1 kept",
    "flushing": "0 1 1 flushed",
    "first-call:seconds=0.8": "0 1 1 kept slow",
    "crash:device=1": r"0 right \[True, True, True\]",
}


@pytest.fixture(scope="module")
def ends() -> dict[str, str]:
    program = Path(__file__).with_name("faulty.py")
    done = subprocess.run(
        [sys.executable, str(program), *ENDS], env=AT_START, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("fault", ENDS)
def test_each_kind_ends_as_it_should(ends: dict[str, str], fault: str) -> None:
    assert re.match(ENDS[fault], ends[fault]), ends[fault]
