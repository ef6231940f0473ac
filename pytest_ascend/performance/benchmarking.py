"""The fixture ``ascend_benchmark``: time work, record its figures, compare it with its baseline, profile it."""

from __future__ import annotations

import contextlib
import csv
import functools
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pytest_ascend.device import Device
from pytest_ascend.environment.chips import chip_of
from pytest_ascend.environment.identity import Identity
from pytest_ascend.environment.npu_smi import ELSEWHERE, OTHERS, of_others, parse, parse_common, shared
from pytest_ascend.performance.baseline import Comparison, pooled_us
from pytest_ascend.performance.timing import FEWEST, Make, Timing, one_thread, time_rounds
from pytest_ascend.performance.verdict import Estimate, estimate
from pytest_ascend.records.case import Measure
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.programs import run

#: The default duration of a benchmark in seconds, including its peer.
BUDGET_S = 1.0
#: Limits for an emulated device, whose times say nothing about any device: seconds at most, rounds at least.
EMULATED_BUDGET_S, EMULATED_ROUNDS = 0.2, 3
PERCENTILES = {"latency_p50_us": 50.0, "latency_p95_us": 95.0, "latency_p99_us": 99.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of one call: ``items`` samples, ``flop`` floating-point operations, ``moved_bytes`` of memory."""

    items: float = 0.0
    flop: float = 0.0
    moved_bytes: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True, slots=True)
class AscendBenchmark:
    """Times work within one test. ``measure`` and ``note`` record figures and verdicts of the case.

    ``benchmark`` is pytest-benchmark's fixture, None if it is disabled: rounds are then timed without it. ``card`` is
    the card in every numbering, None if there is none.
    """

    device: Device
    case_id: str
    comparison: Comparison
    measure: Measure
    note: Callable[[Verdict], None]
    benchmark: Any = None
    budget_s: float = BUDGET_S
    card: Identity | None = None

    def __call__(self, make: Make, work: Work | None = None, *, budget_s: float = 0.0, preparations: int = 1) -> Timing:
        """Time the callable that ``make(device)`` returns, and return the rounds.

        If the device shares the host's processor, ``make`` is also called for the CPU: that is the peer. Both are then
        prepared ``preparations`` times. The verdict is recorded: a test need not check it.
        """
        seconds, fewest = max(budget_s, self.budget_s), FEWEST
        if self.device.emulated:
            seconds, fewest, preparations = min(seconds, EMULATED_BUDGET_S), EMULATED_ROUNDS, 1
        if preparations == 1:
            make = functools.cache(make)  # models are large: rounds, profile and confirmation share one
        timed = functools.partial(
            time_rounds, make, self.device, budget_s=seconds, fewest=fewest, preparations=preparations
        )
        with one_thread(self.device):
            timing = timed(benchmark=self.benchmark)
        found = {**host_conditions(), **self._card(make)}
        work = work or Work()
        done = achieved(timing, work, self.device.chip())
        for name, value in {**figures(timing), **done, **per_call(work), **found}.items():
            self.measure(name, value)
        series = {"latency_us": timing.latencies_us, "peer_us": timing.peers_us, "device_us": timing.device_us}
        for name, times in series.items():
            if times or name == "latency_us":
                self.measure(name, times)
        choice = self.comparison.choice
        if choice and (runs := choice.baseline.benchmarks.get(self.case_id)):
            # A baseline has times by the clock that decides.
            self.measure(f"baseline_{'device_us' if timing.device_us else 'latency_us'}", pooled_us(runs))
        profile = profile_of(make(self.device.torch_device()), self.device)
        for name, value in profile.times_us.items():
            self.measure(f"{PREFIX}{name}", value)
        notes = (*remarks(found), *clock_remarks(timing), *profile.remarks)

        def again() -> Estimate:
            with one_thread(self.device):
                return _estimate(timed())

        same = self.comparison.of_same_work(self.case_id, per_call(work))
        verdict = same.verdict(self.case_id, _estimate(timing), again, remarks=notes, profile=profile.times_us)
        if verdict is not None:
            self.note(verdict.as_whole())
        return timing

    def _card(self, make: Make) -> dict[str, float]:
        """Query the card's condition under load: an idle card has a lower clock."""
        if self.device.kind != "npu" or self.device.emulated or self.card is None:
            return {}
        work = make(self.device.torch_device())

        def some_work() -> None:
            work()
            self.device.synchronize()

        elsewhere = getattr(self.device, "memory_elsewhere_bytes", int)()
        return {ELSEWHERE: float(elsewhere), **card_conditions(self.card, some_work)}


def _estimate(timing: Timing) -> Estimate:
    return estimate(timing.device_us or timing.latencies_us, timing.peers_us)


def figures(timing: Timing) -> dict[str, float]:
    """Return the percentiles of the latency, and the time of the first call, by name."""
    found = {name: float(np.percentile(timing.latencies_us, percent)) for name, percent in PERCENTILES.items()}
    device = {"device_p50_us": float(np.median(timing.device_us))} if timing.device_us else {}
    return {**found, **device, "first_call_us": timing.first_us, "calls_per_round": float(timing.calls)}


#: The work of one call, by the names of its measurements.
WORK = ("items_per_call", "gflop_per_call", "moved_bytes_per_call")


def per_call(work: Work) -> dict[str, float]:
    """Return the known work of one call, by name."""
    known = zip(WORK, (work.items, work.flop * 1e-9, work.moved_bytes), strict=True)
    return {name: value for name, value in known if value}


def achieved(timing: Timing, work: Work, chip: str) -> dict[str, float]:
    """Return the work per second at the median latency, and its share of the chip's peak."""
    seconds = float(np.median(timing.device_us or timing.latencies_us)) * 1e-6
    items, flop, moved = (each / seconds for each in (work.items, work.flop, work.moved_bytes))
    rates = {"throughput_items_per_s": items, "compute_gflop_per_s": flop * 1e-9, "traffic_gb_per_s": moved * 1e-9}
    shares = shares_of_peak(chip, work.dtype, flop, moved)
    return {name: value for name, value in {**rates, **shares}.items() if value}


def clock_remarks(timing: Timing) -> tuple[str, ...]:
    """Return a remark if the device's clock shows more time than the host waited: one of them is wrong."""
    host = float(np.median(timing.latencies_us))
    device = float(np.median(timing.device_us or [0.0]))
    if device <= host * 1.05:  # they differ by launch and wait times
        return ()
    return (f"the device's clock says {device:.0f} us, and the host waited {host:.0f} us: one of the clocks is wrong",)


#: Dtypes that the matrix units of these chips multiply at full speed.
HALVES = ("float16", "bfloat16", "autocast-float16", "autocast-bfloat16")


def shares_of_peak(driver_name: str, dtype: str, flop_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """Return the shares of a chip's peak that were reached, by name; empty if the peak is unknown."""
    chip = chip_of(driver_name)
    if chip is None:
        return {}
    in_halves = chip.half_flop_per_s and dtype in HALVES
    compute = {"share_of_peak_compute": flop_per_s / chip.half_flop_per_s} if in_halves else {}
    memory = {"share_of_peak_bandwidth": bytes_per_s / chip.bytes_per_s} if chip.bytes_per_s else {}
    return {**compute, **memory}


#: Timeout for npu-smi in seconds; it waits for a driver that may hang.
ANSWER_S = 5.0
#: Name in ``npu-smi info -t common`` -> name of the measurement.
CARD = {
    "NPU Real-time Power(W)": "npu_power_w",
    "Temperature(C)": "npu_temperature_c",
    "Aicore curFreq(MHZ)": "npu_frequency_mhz",
    "Aicore Freq(MHZ)": "npu_rated_frequency_mhz",
}


def host_conditions() -> dict[str, float]:
    """Return the load per processor over the last minute; nothing if the system does not provide it."""
    with contextlib.suppress(OSError):
        return {"host_load_per_cpu": os.getloadavg()[0] / (os.cpu_count() or 1)}
    return {}


def card_conditions(card: Identity, work: Callable[[], object] | None = None) -> dict[str, float]:
    """Return power, temperature and clock of a card from npu-smi; empty if it is missing or does not answer.

    An idle card lowers its clock: ``work`` is called repeatedly until npu-smi has answered.
    """
    program = shutil.which("npu-smi")
    if program is None or card.npu < 0:
        return {}
    # The 950 has no -c; a card of an Atlas A3 is one NPU with two chips.
    which = ["-i", str(card.npu), *(["-c", str(card.chip)] if card.chip >= 0 else [])]
    forms = (["info", "-t", "common", *which], ["info"])
    with ThreadPoolExecutor(max_workers=len(forms)) as executor:
        asked = [executor.submit(run, [program, *form], os.environ, ANSWER_S) for form in forms]
        while work is not None and not all(each.done() for each in asked):
            work()
    common, table = (each.result().text for each in asked)
    readings = parse_common(common, card.chip)

    def is_ours(pid: int) -> bool:  # all processes of a run belong to this one's session
        with contextlib.suppress(OSError):
            return os.getsid(pid) == os.getsid(0)
        return False

    others_mb = of_others(card.npu, card.chip, parse(table).processes, is_ours)
    return {**{CARD[name]: figure for name, figure in readings.items() if name in CARD}, OTHERS: float(others_mb << 20)}


def remarks(conditions: Mapping[str, float]) -> tuple[str, ...]:
    """Return sentences on why times on this machine are unreliable."""
    found = []
    load = conditions.get("host_load_per_cpu", 0.0)
    # One processor is ours; if others need more than half of them all, the machine is busy.
    if load - 1 / (os.cpu_count() or 1) > 0.5:
        found.append(f"the machine was busy: {load:.1f} processes wanted each of its {os.cpu_count()} processors")
    clock, rated = conditions.get("npu_frequency_mhz", 0.0), conditions.get("npu_rated_frequency_mhz", 0.0)
    if rated and clock < 0.95 * rated:
        found.append(f"the card was throttled: {clock:.0f} of {rated:.0f} MHz")
    if others := shared(conditions):
        found.append(f"others used the card: {others}")
    return tuple(found)


#: Steps before memory is measured: the first ones create the optimizer's state and fill caches.
WARM_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """``by_step`` is the memory of tensors after each step, ``peak_bytes`` the maximum within the steps.

    ``elsewhere`` is the memory used meanwhile on other devices of the kind, by index.
    """

    peak_bytes: int
    by_step: tuple[int, ...]
    elsewhere: dict[int, int] = field(default_factory=dict)


def leak(by_step: Sequence[int]) -> float:
    """Return the bytes leaked per step, 0 if memory only fluctuates.

    Memory that leaks never returns to earlier levels: the minimum of the later half of the steps is above the maximum
    of the earlier half. A tensor kept in every tenth of 40 steps raises the level four times.
    """
    half = len(by_step) // 2
    earlier, later = by_step[:half], by_step[half:]
    # Smaller changes are ignored: torch's caching allocators round up to 512 bytes.
    if not earlier or min(later) < max(earlier) + 512:
        return 0.0
    return (by_step[-1] - by_step[0]) / max(1, len(by_step) - 1)


def use_of(step: Callable[[], object], device: Device, *, steps: int) -> MemoryUse:
    """Run ``step`` WARM_STEPS times and then ``steps`` times, and return the memory used."""
    for _ in range(WARM_STEPS):
        step()
    device.synchronize()
    gc.collect()
    others = _others(device)
    device.reset_peak_memory()
    by_step = []
    for _ in range(steps):
        step()
        device.synchronize()
        by_step.append(device.allocated_bytes())
    grown = {index: now - others[index] for index, now in _others(device).items() if now > others[index]}
    return MemoryUse(peak_bytes=device.peak_memory_bytes(), by_step=tuple(by_step), elsewhere=grown)


def _others(device: Device) -> dict[int, int]:
    module, own = device.module, device.torch_device().index or 0
    if module is None:
        return {}
    return {index: int(module.memory_allocated(index)) for index in range(module.device_count()) if index != own}


#: Maximum number of profiled calls, within PATIENCE_S: their minimum counts, as for times.
PROFILED_CALLS, PATIENCE_S = 3, 0.2
#: Prefixes of measurements, and of operators whose time was measured on the NPU.
PREFIX, ON_NPU = "profile_us_", "npu:"
#: torch_npu.profiler's file with a row for each operator of torch, and the columns that are used.
OPERATOR_TABLE, NAME_COLUMN, TIME_COLUMN = "operator_details.csv", "Name", "Device Self Duration(us)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Microseconds of one call by operator, excluding operators inside it, most expensive first.

    They are the host's, which for an asynchronous device is the cost of launching; or the NPU's, with the prefix
    ON_NPU. ``remarks`` say why an NPU's are missing.
    """

    times_us: Mapping[str, float]
    remarks: tuple[str, ...] = ()


def profile_of(call: Callable[[], object], device: Device, profiler: Callable[[], Any] | None = None) -> Profile:
    """Profile work on its device, by torch_npu.profiler on an NPU and by torch's elsewhere.

    ``profiler`` returns the module torch_npu.profiler; by default the installed one. If it fails, the host's profile is
    returned, with the reason.
    """
    times_us, reason = None, ""
    if device.emulated:
        reason = "an emulated device's times are the CPU's"
    elif device.kind == "npu":
        from pytest_ascend.device import npu

        try:
            times_us = _npu_us(call, device, (profiler or npu.profiler)())
        except Exception as error:  # noqa: BLE001 - a missing profile must not lose the benchmark
            reason = f"torch_npu.profiler gave nothing: {type(error).__name__}: {error}"
    times_us = times_us or _host_us(call)
    longest = sorted(times_us, key=times_us.__getitem__, reverse=True)[:12]
    remarks = (f"the profile is the host's: {reason}",) if reason else ()
    return Profile(times_us={name: times_us[name] for name in longest}, remarks=remarks)


def _host_us(call: Callable[[], object]) -> Mapping[str, float]:
    # Kineto, below torch's profiler, prints a line at each start and stop.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    from torch.profiler import ProfilerActivity, profile

    found: dict[str, float] = {}
    begin = time.perf_counter()
    for _ in range(PROFILED_CALLS):
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            call()
        times = {each.key: float(each.self_cpu_time_total) for each in profiler.key_averages() if "::" in each.key}
        found = {name: min(taken, found.get(name, taken)) for name, taken in times.items()}
        if time.perf_counter() - begin > PATIENCE_S:
            break
    return found


def _npu_us(call: Callable[[], object], device: Device, profiler: Any) -> Mapping[str, float]:
    """Profile one call; reading CANN's files afterwards takes seconds."""
    with tempfile.TemporaryDirectory(prefix="pytest-ascend-profile-") as folder:
        with profiler.profile(
            activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
            on_trace_ready=profiler.tensorboard_trace_handler(folder),
        ):
            call()
            device.synchronize()
        tables = list(Path(folder).rglob(OPERATOR_TABLE))
        if not tables:
            raise FileNotFoundError(f"it wrote no {OPERATOR_TABLE}")
        found: dict[str, float] = {}
        with tables[0].open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):  # a table of another format raises KeyError or ValueError
                if (taken := float(row[TIME_COLUMN])) > 0:
                    found[ON_NPU + row[NAME_COLUMN]] = found.get(ON_NPU + row[NAME_COLUMN], 0.0) + taken
    if not found:
        raise ValueError(f"{OPERATOR_TABLE} has no operator that took time on the NPU")
    return found
