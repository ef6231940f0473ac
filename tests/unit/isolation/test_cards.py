"""Cards are shared between runs by locks that the kernel gives back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_ascend.isolation.cards import Card, Locks


def test_two_runs_get_different_cards(tmp_path: Path) -> None:
    first, second, third = Locks(tmp_path), Locks(tmp_path), Locks(tmp_path)
    assert first.take("npu", (0, 1), 1) == (0,)
    assert second.take("npu", (0, 1), 2) == (1,)
    assert third.take("npu", (0, 1), 1) == ()
    first.release()
    assert third.take("npu", (0, 1), 1) == (0,)


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from pytest_ascend.isolation.cards import Locks
locks = Locks(pathlib.Path({str(tmp_path)!r}))
assert locks.take("npu", (0,), 1) == (0,)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert Locks(tmp_path).take("npu", (0,), 1) == (0,)


def test_a_card_that_recovers_is_kept() -> None:
    card = Card(label="npu:0", index=0)
    for failure in ("zeros came", "", "zeros came", ""):
        card.started(failure)
    assert not card.quarantined
