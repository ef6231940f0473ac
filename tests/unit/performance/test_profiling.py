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

from pytest_ascend.device import Cpu
from pytest_ascend.performance import benchmarking
from pytest_ascend.performance.baseline import became_slower
from pytest_ascend.performance.benchmarking import NAME_COLUMN, OPERATOR_TABLE, TIME_COLUMN, profile_of

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
                (place / OPERATOR_TABLE).write_text(self.table, encoding="utf-8")

        return write

    @contextlib.contextmanager
    def profile(self, *, activities: list[str], on_trace_ready: Callable[[], None]) -> Iterator[None]:
        self.asked.append(activities)
        yield
        on_trace_ready()


def table(*rows: tuple[str, float]) -> str:
    return "\n".join(
        [f"{NAME_COLUMN},Input Shapes,{TIME_COLUMN}", *(f'{name},"64,64",{taken}' for name, taken in rows)]
    )


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
    assert len(found.times_us) == 12
    assert next(iter(found.times_us)) == "npu:aten::op39"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (None, f"wrote no {OPERATOR_TABLE}"),
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
    assert "no torch_npu.profiler here" in found.remarks[0]
    assert found.times_us["aten::mm"] > 0


def test_the_emulated_device_is_not_asked_for_what_its_cann_lacks() -> None:
    profiler = FakeProfiler(table(("aten::mm", 1.0)))
    found = profile_of(product, npu(emulated=True), lambda: profiler)
    assert found.remarks == ("the profile is the host's: an emulated device's times are the CPU's",)
    assert profiler.asked == []


def test_the_operator_that_grew_most_comes_first() -> None:
    before = {"aten::mm": 100.0, "aten::add": 10.0, "aten::sum": 5.0}
    now = {"aten::mm": 110.0, "aten::add": 30.0, "aten::sum": 4.0}
    assert became_slower(now, before) == ["operator aten::add: 10 -> 30 us", "operator aten::mm: 100 -> 110 us"]


def test_times_of_an_npu_are_not_compared_with_a_hosts() -> None:
    said = became_slower({"npu:aten::mm": 40.0}, {"aten::mm": 10.0})
    assert said == ["operator npu:aten::mm: 40 us; the baseline has no profile of this kind"]


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, 3), (0.09, 3), (0.11, 2), (0.21, 1)])
def test_a_host_is_profiled_three_times_or_until_patience_ends(
    seconds: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, made = [1000.0], list[int]()

    def call() -> None:
        made.append(1)
        now[0] += seconds

    monkeypatch.setattr(benchmarking, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: contextlib.nullcontext(NOTHING))
    assert profile_of(call, Cpu()).times_us == {}
    assert len(made) == calls


NOTHING = SimpleNamespace(key_averages=list)


def test_the_least_of_several_profiles_counts_for_each_operator_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator is told by its namespace: other events are ranges of the profiler's own."""
    taken = iter(
        [
            {"aten::mm": 5, "aten::add": 1, "aten::gone": 1, "ProfilerStep": 9},
            {"aten::mm": 3, "aten::add": 2, "aten::new": 4},
            {"aten::mm": 4, "aten::add": 3, "aten::new": 6},
        ]
    )

    def profile(activities: list[Any]) -> Any:
        assert activities == [torch.profiler.ProfilerActivity.CPU]
        events = [SimpleNamespace(key=key, self_cpu_time_total=us) for key, us in next(taken).items()]
        return contextlib.nullcontext(SimpleNamespace(key_averages=lambda: events))

    monkeypatch.setattr(benchmarking, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(torch.profiler, "profile", profile)
    found = profile_of(lambda: None, Cpu()).times_us
    assert list(found.items()) == [("aten::new", 4), ("aten::mm", 3), ("aten::add", 1)]


def test_by_default_the_profiler_is_torch_npus(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = FakeProfiler(table(("aten::mm", 30)))
    monkeypatch.setattr("pytest_ascend.device.npu.profiler", lambda: profiler)
    assert profile_of(product, npu()).times_us == {"npu:aten::mm": 30}


def test_an_npu_has_done_its_work_before_its_profile_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    profiler = FakeProfiler(table(("aten::mm", 30)))
    written = profiler.tensorboard_trace_handler

    def handler(folder: str) -> Callable[[], None]:
        return lambda: (done.append("written"), written(folder)())[1]

    monkeypatch.setattr(FakeNpu, "synchronize", lambda _: done.append("waited"))
    monkeypatch.setattr(profiler, "tensorboard_trace_handler", handler)
    profile_of(lambda: done.append("called"), npu(), lambda: profiler)
    assert done == ["called", "waited", "written"]


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ({}, {"aten::mm": 10.0}, []),
        ({"aten::mm": 10.0}, {}, []),
        ({"aten::mm": 10.0}, {"aten::mm": 10.0}, []),
        ({"aten::mm": 9.0, "aten::new": 2.4}, {"aten::mm": 10.0}, ["operator aten::new: 0 -> 2 us"]),
    ],
)
def test_only_operators_that_grew_are_named(now: dict[str, float], before: dict[str, float], said: list[str]) -> None:
    assert became_slower(now, before) == said
