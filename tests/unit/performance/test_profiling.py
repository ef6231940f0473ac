"""Whose profile is taken, on devices and with a profiler that are made for the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.device.cpu_and_cuda import Cpu
from pytest_ascend.performance.profiling import KEPT, NAME, TABLE, TAKEN, became_slower, profile_of

X = torch.ones(64, 64)


def product() -> torch.Tensor:
    return X @ X


class FakeNpu(Cpu):
    """A device that says that it is an NPU."""


def npu(*, emulated: bool = False) -> FakeNpu:
    device = FakeNpu()
    object.__setattr__(device, "kind", "npu")
    object.__setattr__(device, "emulated", emulated)
    return device


@dataclass
class FakeProfiler:
    """Writes what torch_npu.profiler writes; ``table`` is the text, None for none."""

    table: str | None
    asked: list[Any] = field(default_factory=list)
    ProfilerActivity = SimpleNamespace(CPU="cpu", NPU="npu")

    def tensorboard_trace_handler(self, folder: str) -> Callable[[], None]:
        def write() -> None:
            if self.table is not None:
                place = Path(folder, "host_1_ascend_pt", "ASCEND_PROFILER_OUTPUT")
                place.mkdir(parents=True)
                (place / TABLE).write_text(self.table, encoding="utf-8")

        return write

    @contextlib.contextmanager
    def profile(self, *, activities: list[str], on_trace_ready: Callable[[], None]) -> Iterator[None]:
        self.asked.append(activities)
        yield
        on_trace_ready()


def table(*rows: tuple[str, float]) -> str:
    return "\n".join([f"{NAME},Input Shapes,{TAKEN}", *(f'{name},"64,64",{taken}' for name, taken in rows)])


def test_on_the_cpu_a_profile_names_operators() -> None:
    found = profile_of(product, Cpu())
    assert found.times_us["aten::mm"] > 0
    assert not found.remarks


def test_on_an_npu_the_times_are_its_own_summed_by_operator_the_longest_first() -> None:
    profiler = FakeProfiler(
        table(("aten::neg", 0.4), ("aten::add", 5.0), ("aten::mm", 30), ("aten::add", 7.5), ("aten::view", 0))
    )
    found = profile_of(product, npu(), lambda: profiler)
    assert list(found.times_us.items()) == [("npu:aten::mm", 30.0), ("npu:aten::add", 12.5), ("npu:aten::neg", 0.4)]
    assert not found.remarks
    assert profiler.asked == [["cpu", "npu"]]


def test_of_many_operators_the_longest_are_kept() -> None:
    profiler = FakeProfiler(table(*((f"aten::op{each}", float(each)) for each in range(1, 40))))
    found = profile_of(product, npu(), lambda: profiler)
    assert len(found.times_us) == KEPT
    assert next(iter(found.times_us)) == "npu:aten::op39"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (None, f"wrote no {TABLE}"),
        ("", "no operator that took time"),
        (table(("aten::view", 0.0)), "no operator that took time"),
        ("Name,Other\naten::mm,1", "KeyError"),
        (table(("aten::mm", 1.0)).replace("1.0", "soon"), "ValueError"),
    ],
)
def test_where_the_npus_profile_is_missing_the_hosts_is_given_and_why(written: str | None, reason: str) -> None:
    found = profile_of(product, npu(), lambda: FakeProfiler(written))
    assert found.times_us["aten::mm"] > 0
    [remark] = found.remarks
    assert remark.startswith("the profile is the host's: torch_npu.profiler gave nothing")
    assert reason in remark


def test_a_profiler_that_cannot_be_had_costs_no_benchmark() -> None:
    def missing() -> Any:
        raise ImportError("no torch_npu.profiler here")

    found = profile_of(product, npu(), missing)
    assert "no torch_npu.profiler here" in found.reason
    assert found.times_us["aten::mm"] > 0


def test_the_emulated_device_is_not_asked_for_what_its_cann_lacks() -> None:
    profiler = FakeProfiler(table(("aten::mm", 1.0)))
    found = profile_of(product, npu(emulated=True), lambda: profiler)
    assert found.reason == "the emulated CANN has no profiler"
    assert profiler.asked == []


def test_the_operator_that_grew_most_comes_first() -> None:
    before = {"aten::mm": 100.0, "aten::add": 10.0, "aten::sum": 5.0}
    now = {"aten::mm": 110.0, "aten::add": 30.0, "aten::sum": 4.0}
    assert became_slower(now, before) == ["operator aten::add: 10 -> 30 us", "operator aten::mm: 100 -> 110 us"]


def test_times_of_an_npu_are_not_compared_with_a_hosts() -> None:
    said = became_slower({"npu:aten::mm": 40.0}, {"aten::mm": 10.0})
    assert said == ["operator npu:aten::mm: 40 us; the baseline has no profile of this kind"]
