"""The limits on time and memory are held against an NPU, and against nothing that only looks like one."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suites.benchmarks.sizes import HOST

suite = importlib.import_module("suites.fusion.test_fusion")

CASE = SimpleNamespace(subject="layer-norm-gelu.in-place")
ROUNDS = [1 + 0.001 * (number % 5) for number in range(40)]


@dataclass
class Chip:
    """A device that computes on the CPU and says of its memory what it is told to: a peak for each form."""

    kind: str = "npu"
    emulated: bool = False
    label: str = "npu:0"
    peaks: tuple[int, ...] = (0, 0)

    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def synchronize(self) -> None: ...

    def allocated_bytes(self) -> int:
        return 1000

    def reset_peak_memory(self) -> None: ...

    def peak_memory_bytes(self) -> int:
        first, *rest = self.peaks
        self.peaks = tuple(rest)
        return 1000 + first


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "sizes_of", lambda _device: HOST)


def memory(device: Chip) -> dict[str, Any]:
    found: dict[str, Any] = {}
    suite.test_memory(CASE, device, found.__setitem__)
    return found


def time(device: Chip, monkeypatch: pytest.MonkeyPatch, fused_us: float) -> dict[str, Any]:
    times = [fused_us * each for each in ROUNDS], [100 * each for each in ROUNDS]
    monkeypatch.setattr(suite, "_in_turn", lambda *_: times)
    found: dict[str, Any] = {}
    suite.test_time(CASE, device, SimpleNamespace(enabled=False), found.__setitem__)
    return found


def test_a_form_that_takes_more_memory_fails_on_a_chip() -> None:
    assert memory(Chip(peaks=(1200, 1000)))["peak_memory_ratio"] == pytest.approx(1.2)
    with pytest.raises(AssertionError, match=r"1\.30 times the memory"):
        memory(Chip(peaks=(1300, 1000)))


def test_a_form_that_saves_too_little_time_fails_on_a_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time(Chip(), monkeypatch, 60.0)["time_saved_share"] == pytest.approx(0.4, abs=0.01)
    with pytest.raises(AssertionError, match="saves 20%"):
        time(Chip(), monkeypatch, 80.0)


@pytest.mark.parametrize(
    ("device", "said"),
    [(Chip(emulated=True), "is not emulated"), (Chip(kind="cpu", label="cpu"), "is not supported on cpu")],
)
def test_where_the_host_computes_nothing_is_judged(device: Chip, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotImplementedError, match=said):
        time(device, monkeypatch, 200.0)
    device.peaks = (9000, 1000)
    with pytest.raises(NotImplementedError, match=said):
        memory(device)


def test_a_device_that_cannot_tell_its_memory_is_not_judged() -> None:
    with pytest.raises(NotImplementedError, match="measuring memory is not supported"):
        memory(Chip(peaks=(-1000, -1000)))


def test_both_forms_are_timed_in_turn() -> None:
    calls: list[str] = []
    fused, plain = suite._in_turn(
        lambda: calls.append("fused"), lambda: calls.append("plain"), Chip(), SimpleNamespace(enabled=False)
    )
    assert len(fused) == len(plain) == suite.ROUNDS
    assert calls == ["plain", "fused"] * (suite.ROUNDS + suite.WARM_ROUNDS)
