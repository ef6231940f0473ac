"""What a benchmark asks of its device, its clock and its card, and what it makes of their answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.device import Cpu
from pytest_ascend.environment.identity import Identity
from pytest_ascend.environment.npu_smi import ELSEWHERE
from pytest_ascend.performance import benchmarking
from pytest_ascend.performance.baseline import Baseline, Choice, Comparison, MeasuredRun
from pytest_ascend.performance.benchmarking import (
    AscendBenchmark,
    MemoryUse,
    Profile,
    Work,
    achieved,
    card_conditions,
    clock_remarks,
    figures,
    host_conditions,
    leak,
    remarks,
    shares_of_peak,
)
from pytest_ascend.performance.timing import Timing, one_thread
from pytest_ascend.performance.verdict import Estimate, estimate
from pytest_ascend.records.case import Stack
from pytest_ascend.records.verdict import Verdict

CARD = Identity(index=0, npu=5, chip=0)
HOST = (10.0, 20.0, 30.0)
ALONE = Timing(first_us=1, calls=2, latencies_us=HOST)
TIMED = {
    "alone": ALONE,
    "peer": Timing(first_us=1, calls=2, latencies_us=HOST, peers_us=(4.0, 5.0, 6.0)),
    "clock": Timing(first_us=1, calls=2, latencies_us=HOST, device_us=(7.0, 8.0, 9.0)),
}


def make(_: torch.device) -> Callable[[], object]:
    return lambda: None


class Timed:
    """A benchmark whose rounds are given: keeps what it is asked, and what it records."""

    def __init__(self, patch: pytest.MonkeyPatch, *timings: Timing, device: Any = None, **options: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.threads: list[int] = []
        self.kept: dict[str, Any] = {}
        self.told: list[Verdict] = []
        self._left = iter(timings)
        patch.setattr(benchmarking, "time_rounds", self._time)
        patch.setattr(benchmarking, "host_conditions", dict)
        profile = Profile(times_us={"aten::mm": 3.0}, remarks=("the profile is the host's: none",))
        patch.setattr(benchmarking, "profile_of", lambda *_: profile)
        given = {"comparison": Comparison(choice=None, tolerance=0.05), **options}
        self.benchmark = AscendBenchmark(
            device=device or Cpu(), case_id="x", measure=self.kept.__setitem__, note=self.told.append, **given
        )

    def _time(self, make: object, device: object, **options: Any) -> Timing:
        self.asked.append({"device": device, **options})
        self.threads.append(torch.get_num_threads())
        return next(self._left)


@pytest.mark.parametrize("own", [0.5, 2.0])
def test_the_longer_time_counts_of_the_runs_and_the_tests(own: float, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, ALONE, benchmark="pytest-benchmark's")
    assert timed.benchmark(make, budget_s=own, preparations=3) is ALONE
    assert timed.asked == [
        {
            "device": timed.benchmark.device,
            "budget_s": max(own, benchmarking.BUDGET_S),
            "fewest": benchmarking.FEWEST,
            "preparations": 3,
            "benchmark": "pytest-benchmark's",
        }
    ]


def test_an_emulated_device_whose_times_say_nothing_is_timed_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, ALONE, device=Cpu(emulated=True))
    timed.benchmark(make, budget_s=2.0, preparations=3)
    asked = {name: timed.asked[0][name] for name in ("budget_s", "fewest", "preparations")}
    assert asked == {"budget_s": 0.2, "fewest": 3, "preparations": 1}


@pytest.mark.parametrize("preparations", [1, 2])
def test_work_that_is_prepared_once_is_shared_with_its_profile(
    preparations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()

    def counted(device: torch.device) -> Callable[[], object]:
        made.append(device.type)
        return lambda: None

    timed = Timed(monkeypatch, ALONE)
    monkeypatch.setattr(benchmarking, "time_rounds", lambda make, device, **_: (make(device.torch_device()), ALONE)[1])
    timed.benchmark(counted, preparations=preparations)
    assert made == ["cpu"] * preparations


@pytest.mark.parametrize(
    ("which", "series"),
    [("alone", {"latency_us"}), ("peer", {"latency_us", "peer_us"}), ("clock", {"latency_us", "device_us"})],
)
def test_each_series_is_kept_with_the_profile(which: str, series: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    timing = TIMED[which]
    timed = Timed(monkeypatch, timing)
    timed.benchmark(make, Work(items=4))
    kept = {name: value for name, value in timed.kept.items() if isinstance(value, tuple)}
    whole = {"latency_us": timing.latencies_us, "peer_us": timing.peers_us, "device_us": timing.device_us}
    assert kept == {name: whole[name] for name in series}
    assert timed.kept["profile_us_aten::mm"] == 3
    assert timed.kept["items_per_call"] == 4
    assert timed.kept["throughput_items_per_s"] == pytest.approx(4e6 / (8 if which == "clock" else 20))
    assert timed.told == [], "without a baseline there is no verdict"


def test_the_figures_of_a_timing() -> None:
    timing = Timing(first_us=7, calls=3, latencies_us=tuple(map(float, range(101))), device_us=(1.0, 2.0, 9.0))
    assert figures(timing) == {
        "latency_p50_us": 50,
        "latency_p95_us": 95,
        "latency_p99_us": 99,
        "device_p50_us": 2,
        "first_call_us": 7,
        "calls_per_round": 3,
    }
    assert "device_p50_us" not in figures(ALONE)


def baseline(middle: float, **more: Any) -> Comparison:
    runs = tuple(MeasuredRun.of([value * middle] * 9) for value in (1.0, 1.001, 0.999))
    stack = Stack(device="cpu", emulated=False)
    made = Baseline(recorded="then", stack=stack, settings={}, benchmarks={"x": runs}, **more)
    return Comparison(choice=Choice(baseline=made, description="a baseline"), tolerance=0.05)


@pytest.mark.parametrize("which", ["alone", "clock"])
def test_a_run_is_judged_by_the_clock_that_its_baseline_has(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = TIMED[which]
    counts, series = ("device_us", timing.device_us) if which == "clock" else ("latency_us", timing.latencies_us)
    middle = min(series)
    timed = Timed(monkeypatch, timing, comparison=baseline(middle))
    timed.benchmark(make)
    assert {name for name in timed.kept if name.startswith("baseline_")} == {f"baseline_{counts}"}
    [verdict] = timed.told
    assert verdict.agrees
    assert verdict.leaves[0].headline == verdict.headline
    assert verdict.metrics["slowdown"] == pytest.approx(0, abs=1e-3)
    assert "the profile is the host's: none" in verdict.message


def test_a_slow_run_is_timed_again_without_the_benchmark_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cpu(kind="sharing", emulated=True)
    slow, usual = (Timing(first_us=1, calls=1, latencies_us=(us,) * 9) for us in (20.0, 10.0))
    timed = Timed(monkeypatch, slow, usual, device=device, comparison=baseline(10.0), benchmark="pytest-benchmark's")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        timed.benchmark(make)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert timed.threads == [1, 1]
    assert [each.get("benchmark") for each in timed.asked] == ["pytest-benchmark's", None]
    assert timed.told[0].agrees


def test_a_device_of_its_own_leaves_the_host_its_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread(Cpu(kind="npu")):
            assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), one_thread(Cpu()):
            raise KeyError(torch.get_num_threads())
        assert torch.get_num_threads() == 2, "also after an error"
    finally:
        torch.set_num_threads(before)


def test_other_work_than_the_baselines_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Timing(first_us=1, calls=1, latencies_us=(20.0,) * 9)
    comparison = baseline(10.0, work={"x": {"items_per_call": 2.0}})
    same = Timed(monkeypatch, slow, slow, comparison=comparison)
    same.benchmark(make, Work(items=2))
    other = Timed(monkeypatch, slow, slow, comparison=comparison)
    other.benchmark(make, Work(items=3))
    assert [each.agrees for each in (*same.told, *other.told)] == [False, True]


class Npu(Cpu):
    """A device that says that it is an NPU, and keeps how often it was waited for."""

    def __init__(self, *, emulated: bool = False) -> None:
        super().__init__(kind="npu", emulated=emulated)
        object.__setattr__(self, "waited", [])

    def synchronize(self) -> None:
        self.waited.append("wait")

    def memory_elsewhere_bytes(self) -> int:
        return 31 * 2**30


def test_a_card_is_asked_about_while_the_work_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    device, worked = Npu(), list[str]()

    def conditions(card: Identity, work: Callable[[], object]) -> dict[str, float]:
        assert card == CARD
        before = len(worked), len(device.waited)
        work()
        assert (len(worked), len(device.waited)) == (before[0] + 1, before[1] + 1)
        return {"npu_power_w": 90.0}

    monkeypatch.setattr(benchmarking, "card_conditions", conditions)
    timed = Timed(monkeypatch, ALONE, device=device, card=CARD, comparison=baseline(10.0))
    timed.benchmark(lambda _: lambda: worked.append("work"))
    assert (timed.kept["npu_power_w"], timed.kept[ELSEWHERE]) == (90, 31 * 2**30)
    assert "others used the card: 31.0 GiB" in timed.told[0].message


@pytest.mark.parametrize(("device", "card"), [(Npu(emulated=True), CARD), (Npu(), None), (Cpu(), CARD)])
def test_no_card_is_asked_where_there_is_none(
    device: Cpu, card: Identity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarking, "card_conditions", None)
    timed = Timed(monkeypatch, ALONE, device=device, card=card)
    timed.benchmark(make)
    assert ELSEWHERE not in timed.kept


@pytest.mark.parametrize(
    ("name", "reading", "kept"),
    [
        ("NPU Real-time Power(W)", 93.5, "npu_power_w"),
        ("Temperature(C)", 46, "npu_temperature_c"),
        ("Aicore curFreq(MHZ)", 800, "npu_frequency_mhz"),
        ("Aicore Freq(MHZ)", 1800, "npu_rated_frequency_mhz"),
    ],
)
def test_what_npu_smi_says_of_a_card_is_kept_by_name(
    name: str, reading: float, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(command: Sequence[str], environ: object, limit_s: float) -> SimpleNamespace:
        asked.append((environ, limit_s))
        return SimpleNamespace(text=f"\tNPU ID : 0\n\n\tChip ID : 0\n\t{name} : {reading}\n" if "-t" in command else "")

    monkeypatch.setattr(benchmarking.shutil, "which", lambda _: "npu-smi")
    monkeypatch.setattr(benchmarking, "run", run)
    found = card_conditions(Identity(index=0, npu=0, chip=0))
    assert found[kept] == reading
    assert len(found) == 2
    assert asked == [(os.environ, benchmarking.ANSWER_S)] * 2
    assert benchmarking.ANSWER_S == 5


def test_without_npu_smi_no_card_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking.shutil, "which", lambda _: None)
    monkeypatch.setattr(benchmarking, "run", None)
    assert card_conditions(CARD) == {}


@pytest.mark.parametrize(("processors", "load"), [(4, 0.75), (None, 3.0)])
def test_the_load_is_the_last_minutes_for_each_processor(
    processors: int | None, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarking.os, "cpu_count", lambda: processors)
    monkeypatch.setattr(benchmarking.os, "getloadavg", lambda: (3.0, 9.0, 9.0))
    assert host_conditions() == {"host_load_per_cpu": load}


def test_a_system_that_does_not_tell_its_load_is_asked_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError

    monkeypatch.setattr(benchmarking.os, "getloadavg", fails)
    assert host_conditions() == {}


@pytest.mark.parametrize(
    ("clock", "rated", "throttled"), [(94, 100, True), (95, 100, False), (100, 100, False), (0, 0, False), (0, 9, True)]
)
def test_a_card_is_throttled_below_a_twentieth_less_than_its_clock(clock: float, rated: float, throttled: bool) -> None:
    said = remarks({"npu_frequency_mhz": clock, "npu_rated_frequency_mhz": rated})
    assert said == ((f"the card was throttled: {clock} of {rated} MHz",) if throttled else ())


def test_a_card_whose_clock_is_not_known_is_not_said_to_be_throttled() -> None:
    assert remarks({"npu_frequency_mhz": 1.0}) == remarks({}) == ()


@pytest.mark.parametrize(("device", "agree"), [(99.0, True), (105.0, True), (106.0, False)])
def test_a_devices_clock_shows_no_more_than_the_host_waited(device: float, agree: bool) -> None:
    timing = Timing(first_us=1, calls=1, latencies_us=(1.0, 100.0, 900.0), device_us=(1.0, device, 9000.0))
    assert (clock_remarks(timing) == ()) is agree


def test_halves_are_what_the_matrix_unit_multiplies_at_full_speed() -> None:
    for dtype in ("float16", "bfloat16", "autocast-float16", "autocast-bfloat16"):
        found = shares_of_peak("Ascend910A", dtype, 128e12, 0.3e12)
        assert found == pytest.approx({"share_of_peak_compute": 0.5, "share_of_peak_bandwidth": 0.25})
    assert shares_of_peak("Ascend910A", "float32", 128e12, 0.3e12) == {"share_of_peak_bandwidth": 0.25}
    assert shares_of_peak("Ascend910B3", "float16", 1e12, 1e12) == {}, "its peaks are not known"


def test_work_whose_amount_is_not_known_has_no_rate() -> None:
    assert achieved(ALONE, Work(), "Ascend910A") == {}
    assert Work().dtype == "float32"


def test_memory_is_what_is_held_after_the_last_step() -> None:
    found = MemoryUse(peak_bytes=9, by_step=(0, 1000, 2000, 3000))
    assert (found.by_step[-1], leak(found.by_step), found.elsewhere) == (3000, 1000, {})


@pytest.mark.parametrize(("own", "others"), [(0, {1: 10, 2: 20}), (1, {0: 0, 2: 20}), (None, {1: 10, 2: 20})])
def test_memory_of_the_other_devices_of_the_kind_is_looked_at(own: int | None, others: dict[int, int]) -> None:
    module = SimpleNamespace(device_count=lambda: 3, memory_allocated=lambda index: 10.0 * index)
    device: Any = SimpleNamespace(module=module, torch_device=lambda: SimpleNamespace(index=own))
    assert benchmarking._others(device) == others
    assert benchmarking._others(Cpu()) == {}


def test_garbage_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    device: Any = SimpleNamespace(
        module=None,
        torch_device=lambda: torch.device("cpu"),
        synchronize=lambda: done.append("wait"),
        reset_peak_memory=lambda: done.append("reset"),
        allocated_bytes=lambda: 0,
        peak_memory_bytes=lambda: 0,
    )
    monkeypatch.setattr(benchmarking.gc, "collect", lambda: done.append("collect"))
    benchmarking.use_of(lambda: None, device, steps=1)
    assert done == ["wait", "collect", "reset", "wait"]


def test_a_timing_is_estimated_by_the_devices_clock_and_the_peer() -> None:
    found = [benchmarking._estimate(TIMED[which]) for which in ("alone", "peer", "clock")]
    assert found == [estimate(HOST), estimate(HOST, (4.0, 5.0, 6.0)), estimate((7.0, 8.0, 9.0))]
    assert all(isinstance(each, Estimate) for each in found)
