"""A child process of an isolated run, by its parts."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from pytest_ascend.plugin import worker

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs glibc, and Linux's /proc",
)


def test_freed_memory_is_given_back_once_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TRIM_BYTES", 64 << 20)
    before = worker._resident()
    blocks = [b"x" * (100 << 10) for _ in range(2000)]  # too small for pages of their own
    between, last = blocks[::20], b"x"  # what is kept between them holds on to the whole heap
    del blocks
    after = worker._trimmed(before)
    assert before != after < before + (64 << 20)
    assert worker._trimmed(after) == after
    assert between, last


def test_a_system_that_tells_no_sizes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_resident", lambda: 0)
    assert worker._trimmed(0) == 0
