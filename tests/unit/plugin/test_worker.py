"""A child process of an isolated run, by its parts."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.plugin import worker

#: In a fresh process, whose heap has no room for what it takes here.
PROGRAM = """
from pytest_ascend.plugin import worker
before = worker.resident_bytes()
blocks = [b"x" * (100 << 10) for _ in range(2000)]  # too small for pages of their own
between = blocks[::20]  # what is kept holds on to the whole heap
largest = worker.resident_bytes()
del blocks
worker.TRIM_BYTES = 64 << 20
after = worker._trimmed(before)
print(before, largest, after, worker._trimmed(after))
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs glibc, and Linux's /proc",
)
def test_freed_memory_is_given_back_once_it_is_much() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, largest, after, again = map(int, found.stdout.split())
    assert largest - before > 150 << 20
    assert after - before < 64 << 20
    assert again == after, "it grew by nothing since"


def test_a_system_that_tells_no_sizes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "resident_bytes", lambda: 0)
    assert worker._trimmed(0) == 0


def test_a_deterministic_worker_comes_up_over_a_torch_that_never_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def torch_device(self) -> None:
            raise RuntimeError("gone")

    monkeypatch.delattr(torch.utils, "deterministic")  # as torch 2.1 has it
    mode = torch.get_deterministic_debug_mode()
    try:
        said = worker._come_up(cast("Device", Dead()), torch.get_num_threads(), deterministic=True)
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.set_deterministic_debug_mode(mode)
    assert said == "RuntimeError: gone"
