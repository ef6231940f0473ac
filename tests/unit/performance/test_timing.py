"""Rounds, warm-up, clocks, memory: on devices that are made for the test."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ascend.device import Cpu
from pytest_ascend.performance import benchmarking, timing
from pytest_ascend.performance.baseline import Baseline, Choice, Comparison, MeasuredRun
from pytest_ascend.performance.benchmarking import AscendBenchmark, Profile, Work, clock_remarks, shares_of_peak
from pytest_ascend.performance.timing import Timing, time_rounds
from pytest_ascend.records.case import Stack
from pytest_ascend.records.record import SERIES_POINTS_LIMIT
from pytest_ascend.records.verdict import Verdict


def counting(calls: list[str]) -> Callable[[torch.device], Callable[[], object]]:
    def make(device: torch.device) -> Callable[[], object]:
        return lambda: calls.append(device.type)

    return make


def test_the_cpu_has_no_peer() -> None:
    calls: list[str] = []
    timing = time_rounds(counting(calls), Cpu(), budget_s=0.01)
    assert not timing.peers_us
    assert len(timing.latencies_us) >= 5
    assert len(calls) > timing.calls * len(timing.latencies_us)


def test_short_work_is_called_often_in_a_round() -> None:
    assert time_rounds(counting([]), Cpu(), budget_s=0.01).calls > 10


@pytest.mark.parametrize("preparations", [1, 4])
def test_work_is_prepared_as_often_as_asked_for_beside_a_peer(preparations: int) -> None:
    device, made = Cpu(kind="sharing", emulated=True), list[str]()

    def make(on: torch.device) -> Callable[[], object]:
        made.append(on.type)
        return lambda: None

    timing = time_rounds(make, device, budget_s=0.02, preparations=preparations)
    assert len(timing.peers_us) == len(timing.latencies_us)
    every = math.ceil(len(timing.peers_us) / preparations)  # rounds: few where the machine is slow
    assert len(made) == 2 * math.ceil(len(timing.peers_us) / every)


def test_work_is_prepared_once_unless_more_is_asked_for() -> None:
    made = list[str]()

    def make(on: torch.device) -> Callable[[], object]:
        made.append(on.type)
        return lambda: None

    time_rounds(make, Cpu(kind="sharing", emulated=True), budget_s=0.005)
    assert len(made) == 2, "the work and its peer"


class WithEvents(Cpu):
    """A device with a clock of its own, which says that each round took 3 ms."""

    kind = "clocked"

    def events(self) -> Any:
        class Event:
            def record(self) -> None: ...

            def elapsed_time(self, _stop: object) -> float:
                return 3.0

        return Event(), Event()


def test_a_device_with_a_clock_is_timed_by_it() -> None:
    object.__setattr__(device := WithEvents(), "kind", "clocked")
    timing = time_rounds(counting([]), device, budget_s=0.01)
    assert timing.device_us == pytest.approx([3000 / timing.calls] * len(timing.latencies_us))
    assert clock_remarks(timing) != ()


def keeping(kept: dict[str, Any], **options: Any) -> AscendBenchmark:
    """Return a benchmark of a case on the CPU that puts its figures into ``kept``."""
    return AscendBenchmark(
        device=Cpu(),
        case_id="x",
        comparison=Comparison(choice=None, tolerance=0.05),
        measure=kept.__setitem__,
        note=lambda _: None,
        budget_s=0.01,
        **options,
    )


def test_what_is_measured_is_kept_with_the_case() -> None:
    kept: dict[str, Any] = {}
    benchmark = keeping(kept)
    benchmark(counting([]), Work(items=4))
    assert {"latency_us", "latency_p50_us", "latency_p99_us", "first_call_us", "throughput_items_per_s"} <= set(kept)


class Pedantic:
    """Stands for pytest-benchmark's fixture: does the rounds, and says that each took a second."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def pedantic(self, run: Callable[[], object], *, setup: Callable[[], object], rounds: int) -> None:
        for _ in range(rounds):
            setup()
            assert not gc.isenabled()
            run()
            self.stats.stats.data.append(1.0)


def test_what_pytest_benchmark_timed_is_what_counts() -> None:
    kept: dict[str, Any] = {}
    fixture = Pedantic()
    benchmark = keeping(kept, benchmark=fixture)
    timed = benchmark(counting([]))
    assert gc.isenabled()
    assert fixture.extra_info == {"calls_per_round": timed.calls}
    assert len(fixture.stats.stats.data) >= timing.FEWEST
    assert kept["latency_us"] == pytest.approx([1e6 / timed.calls] * len(fixture.stats.stats.data))


def test_a_slower_benchmark_names_the_operators_that_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "profile_of", lambda *_: Profile(times_us={"aten::mm": 30.0, "aten::neg": 1.0}))
    told: list[Verdict] = []
    runs = tuple(MeasuredRun.of([value] * 9) for value in (1e-3, 1.01e-3, 0.99e-3))  # nothing is as quick
    for before in ({"aten::mm": 10.0, "aten::neg": 2.0}, {}):
        baseline = Baseline(
            recorded="then",
            stack=Stack(device="cpu", emulated=False),
            settings={},
            benchmarks={"x": runs},
            profiles={"x": before},
        )
        AscendBenchmark(
            device=Cpu(),
            case_id="x",
            comparison=Comparison(choice=Choice(baseline=baseline, description="a baseline"), tolerance=0.05),
            measure=lambda *_: None,
            note=told.append,
            budget_s=0.01,
        )(counting([]))
    assert [each.agrees for each in told] == [False, False]
    assert "operator aten::mm: 10 -> 30 us" in told[0].message
    assert "aten::neg" not in told[0].message
    assert "operator" not in told[1].message


def test_the_baseline_is_kept_beside_what_was_measured() -> None:
    kept: dict[str, Any] = {}
    runs = tuple(MeasuredRun.of([value] * 9) for value in (10.0, 11.0, 12.0))
    stack = Stack(device="cpu", emulated=False)
    baseline = Baseline(recorded="then", stack=stack, settings={}, benchmarks={"x": runs, "y": runs})
    benchmark = AscendBenchmark(
        device=Cpu(),
        case_id="x",
        comparison=Comparison(choice=Choice(baseline=baseline, description="a baseline"), tolerance=0.05),
        measure=kept.__setitem__,
        note=lambda _: None,
        budget_s=0.01,
    )
    benchmark(counting([]))
    assert (min(kept["baseline_latency_us"]), max(kept["baseline_latency_us"])) == (10, 12)


def test_clocks_that_agree_are_not_remarked() -> None:
    assert clock_remarks(Timing(first_us=1, calls=1, latencies_us=(100.0,) * 3, device_us=(95.0,) * 3)) == ()


@pytest.mark.parametrize(
    ("by_step", "leaks"),
    [
        ([1000] * 40, False),
        ([1000, 5000] * 20, False),
        ([1000 + 4096 * (step // 10) for step in range(40)], True),
        ([1000 + 10 * step for step in range(20)], False),
        ([100_000 - 1000 * step for step in range(40)], False),
    ],
)
def test_a_tensor_kept_in_every_tenth_step_is_a_leak(by_step: list[int], leaks: bool) -> None:
    assert bool(benchmarking.leak(by_step)) == leaks


def test_a_busy_machine_and_a_throttled_card_are_said() -> None:
    said = benchmarking.remarks({"host_load_per_cpu": 3.0, "npu_frequency_mhz": 800, "npu_rated_frequency_mhz": 1650})
    assert len(said) == 2


def test_shares_are_given_of_known_chips_only() -> None:
    assert shares_of_peak("Ascend310P3", "float16", 7e12, 0) == pytest.approx(
        {"share_of_peak_compute": 0.1, "share_of_peak_bandwidth": 0}
    )
    assert shares_of_peak("Ascend999", "float16", 1, 1) == {}


def test_the_first_call_is_timed_until_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def passes(nanoseconds: int) -> None:
        now[0] += nanoseconds

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    device: Any = SimpleNamespace(synchronize=lambda: passes(7000))
    assert timing._first_us(lambda: passes(1000), device) == 8.0


def test_what_a_call_does_is_told_as_far_as_it_is_known() -> None:
    found = benchmarking.per_call(Work(items=2, flop=3e9))
    assert found == pytest.approx({"items_per_call": 2, "gflop_per_call": 3})


def test_what_is_achieved_is_the_work_over_the_median_of_the_clock_that_counts() -> None:
    work = Work(items=2, flop=3e9, moved_bytes=5e6)
    taken = Timing(first_us=1, calls=1, latencies_us=(100.0, 200.0, 900.0))
    assert benchmarking.achieved(taken, work, "") == pytest.approx(
        {"throughput_items_per_s": 1e4, "compute_gflop_per_s": 15000, "traffic_gb_per_s": 25}
    )
    by_device = Timing(first_us=1, calls=1, latencies_us=(200.0,), device_us=(100.0,))
    assert benchmarking.achieved(by_device, Work(items=2), "") == pytest.approx({"throughput_items_per_s": 2e4})
    shares = shares_of_peak("Ascend310P3", "float16", 15e12, 25e9)
    assert shares
    found = benchmarking.achieved(taken, Work(flop=3e9, moved_bytes=5e6, dtype="float16"), "Ascend310P3")
    assert {name: found[name] for name in shares} == pytest.approx(shares)


class Simulated(Cpu):
    """A device on a clock of the test's: its work takes ``work_us`` a call, to wait for it ``wait_us``."""

    now_us: float
    work_us: float
    wait_us: float

    def __new__(cls, kind: str, work_us: float, wait_us: float) -> Simulated:
        return super().__new__(cls)

    def __init__(self, kind: str, work_us: float, wait_us: float) -> None:
        super().__init__(kind=kind, emulated=kind == "sharing")
        for name, value in {"now_us": 0.0, "work_us": work_us, "wait_us": wait_us}.items():
            object.__setattr__(self, name, value)

    def spend(self, us: float) -> None:
        object.__setattr__(self, "now_us", self.now_us + us)

    def synchronize(self) -> None:
        self.spend(self.wait_us)

    def events(self) -> Any:
        if self.kind != "clocked":
            return None
        return SimulatedEvent(self), SimulatedEvent(self)


class SimulatedEvent:
    def __init__(self, device: Simulated) -> None:
        self.device, self.at_us = device, 0.0

    def record(self) -> None:
        self.at_us = self.device.now_us

    def elapsed_time(self, stop: SimulatedEvent) -> float:
        return (stop.at_us - self.at_us) / 1e3


@given(
    kind=st.sampled_from(["cpu", "sharing", "clocked", "without"]),
    work_us=st.floats(5, 1e4),
    wait_us=st.floats(0, 50),
    peer_us=st.floats(5, 1e4),
    budget_s=st.floats(0.002, 0.02),
    preparations=st.integers(1, 6),
)
@settings(max_examples=40)
def test_on_a_calm_machine_every_figure_is_what_it_should_be(
    kind: str, work_us: float, wait_us: float, peer_us: float, budget_s: float, preparations: int
) -> None:
    device, made = Simulated(kind, work_us, wait_us), list[str]()

    def make(on: torch.device) -> Callable[[], object]:
        made.append(str(on))
        is_peer = kind == "sharing" and len(made) % 2 == 0
        return lambda: device.spend(peer_us if is_peer else work_us)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: device.now_us * 1e-6)
        patch.setattr(timing.time, "perf_counter_ns", lambda: device.now_us * 1e3)
        patch.setattr(timing.gc, "collect", lambda: 0)  # of all that the tests hold
        found = time_rounds(make, device, budget_s=budget_s, preparations=preparations)
    calls = max(1, math.ceil(200 / (work_us + wait_us) - 1e-9))
    assert found.first_us == pytest.approx(work_us + wait_us)
    assert found.calls == pytest.approx(calls, abs=1 if calls > 1 else 0)
    round_us = found.calls * work_us + wait_us
    assert found.latencies_us == pytest.approx([round_us / found.calls] * len(found.latencies_us))
    has_peer = kind == "sharing"
    assert found.peers_us == pytest.approx([peer_us] * len(found.latencies_us) if has_peer else [])
    assert found.device_us == pytest.approx([work_us] * len(found.latencies_us) if kind == "clocked" else [])
    whole_us = round_us + (found.calls * peer_us if has_peer else 0)
    assert len(found.latencies_us) == pytest.approx(max(5, budget_s * 1e6 / whole_us), abs=1.001)
    if has_peer:
        every = math.ceil(len(found.peers_us) / preparations)
        assert len(made) == 2 * (math.ceil(len(found.peers_us) / every) if preparations > 1 else 1)


def test_a_run_log_takes_no_more_rounds_than_are_timed() -> None:
    assert timing._count(1e-6, 1.0, timing.FEWEST) == timing.MOST == SERIES_POINTS_LIMIT
    assert timing._count(10.0, 1.0, timing.FEWEST) == timing.FEWEST == 5


@pytest.mark.parametrize(("slow_rounds", "least"), [(0, 10), (3, 12), (40, 25)])
def test_a_device_is_warm_when_its_rounds_no_longer_become_quicker(slow_rounds: int, least: int) -> None:
    """Five rounds are compared with the five before, within 2 %, for three tenths of the time at most."""
    device, done = Simulated("without", 1000, 0), list[float]()

    def work() -> None:
        done.append(device.now_us)
        device.spend(1000 * (1 + max(0, slow_rounds + 4 - len(done)) * 0.1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: device.now_us * 1e-6)
        patch.setattr(timing.time, "perf_counter_ns", lambda: device.now_us * 1e3)
        rounds = timing.Rounds(call=work, device=device)
        timing._warm_up(rounds, 0.1)
    assert least <= len(done) <= least + 3


def test_garbage_of_the_preparation_is_collected_before_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(timing.gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(timing, "timed", lambda *_: done.append("rounds") or [1.0])
    monkeypatch.setattr(timing, "_warm_up", lambda *_: 1.0)
    time_rounds(counting([]), Cpu(), budget_s=0.001)
    assert done == ["collect", "rounds"]


def test_garbage_is_collected_before_the_rounds_and_not_during_them() -> None:
    collecting: list[bool] = []
    time_rounds(lambda _: lambda: collecting.append(gc.isenabled()), Cpu(), budget_s=0.005)
    assert gc.isenabled()
    assert collecting[-timing.FEWEST :] == [False] * timing.FEWEST
    gc.disable()
    try:
        time_rounds(counting([]), Cpu(), budget_s=0.001)
        assert not gc.isenabled(), "as it was before"
    finally:
        gc.enable()


def test_memory_is_looked_at_after_warm_steps_on_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    done, elsewhere = list[str](), iter(({1: 100, 2: 50, 3: 9}, {1: 100, 2: 80, 3: 4}))
    held = iter((10, 20, 30))
    device = SimpleNamespace(
        synchronize=lambda: done.append("wait"),
        reset_peak_memory=lambda: done.append("reset"),
        allocated_bytes=lambda: next(held),
        peak_memory_bytes=lambda: 99,
    )
    monkeypatch.setattr(benchmarking, "_others", lambda _: next(elsewhere))
    found = benchmarking.use_of(lambda: done.append("step"), device, steps=3)  # type: ignore[arg-type]
    assert done == ["step"] * 3 + ["wait", "reset"] + ["step", "wait"] * 3
    assert (found.peak_bytes, found.by_step, found.elsewhere) == (99, (10, 20, 30), {2: 30})


@pytest.mark.parametrize(
    ("by_step", "leaked"),
    [
        ((0, 5000, 3000, 3500), 0.0),  # it swings
        ((0, 1000, 1511, 3000), 0.0),  # what allocators round up to
        ((0, 1000, 1512, 3000), 1000.0),
        ((0, 1000, 2000), 1000.0),
        ((7,), 0.0),
        ((), 0.0),
    ],
)
def test_a_leak_is_what_is_never_given_back(by_step: tuple[int, ...], leaked: float) -> None:
    assert benchmarking.leak(by_step) == leaked


@pytest.mark.parametrize(
    ("processors", "load", "busy"), [(4, 0.74, False), (4, 0.76, True), (1, 1.49, False), (None, 1.51, True)]
)
def test_a_machine_is_busy_where_others_want_half_of_it_beside_the_processor_that_is_ours(
    processors: int | None, load: float, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarking.os, "cpu_count", lambda: processors)
    assert bool(benchmarking.remarks({"host_load_per_cpu": load})) is busy
