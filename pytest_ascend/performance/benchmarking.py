"""The fixture ``ascend_benchmark``: time a piece of work, keep its figures, compare it with its baseline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_ascend.device import Device
from pytest_ascend.environment.identity import Identity
from pytest_ascend.performance import conditions
from pytest_ascend.performance.baseline import pooled_us
from pytest_ascend.performance.comparison import Comparison
from pytest_ascend.performance.estimate import Estimate, estimate
from pytest_ascend.performance.peaks import shares_of_peak
from pytest_ascend.performance.profiling import PREFIX, profile_of
from pytest_ascend.performance.timing import Make, Timing, one_thread, time_rounds

#: Seconds that a benchmark takes, its peer included, unless it asks for more.
BUDGET_S = 1.0
#: A device's own clock and the host's differ by launching and waiting; by more than this one of them is wrong.
CLOCKS_AGREE = 0.05

PERCENTILES = {"latency_p50_us": 50.0, "latency_p95_us": 95.0, "latency_p99_us": 99.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What one call does: ``items`` samples, ``flop`` floating-point operations, ``moved_bytes`` of memory traffic."""

    items: float = 0.0
    flop: float = 0.0
    moved_bytes: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True, slots=True)
class AscendBenchmark:
    """Times within one test. ``measure`` and ``note`` keep figures and verdicts with the case.

    ``benchmark`` is pytest-benchmark's fixture, None where that is switched off: rounds are then timed all the same.
    ``card`` is the card in every numbering, None where there is none to ask.
    """

    device: Device
    case_id: str
    comparison: Comparison
    measure: Callable[[str, float | Sequence[float]], None]
    note: Callable[[Mapping[str, Any]], None]
    benchmark: Any = None
    budget_s: float = BUDGET_S
    card: Identity | None = None

    def __call__(self, make: Make, work: Work | None = None, *, budget_s: float = 0.0, preparations: int = 1) -> Timing:
        """Time what ``make(device)`` gives, a call without arguments, and give the rounds.

        ``make`` is asked for the CPU's as well where the device shares the host's processor: that is the peer; and
        there, for both as often as ``preparations`` says. The verdict is noted: a test need not look at it.
        """
        if preparations == 1:
            make = functools.cache(make)  # models are large: rounds, profile and a second look share one
        seconds = max(budget_s, self.budget_s)
        timed = functools.partial(time_rounds, make, self.device, budget_s=seconds, preparations=preparations)
        with one_thread(self.device):
            timing = timed(benchmark=self.benchmark)
        found = {**conditions.host_conditions(), **self._card(make)}
        work = work or Work()
        done = achieved(timing, work, self.device.chip())
        for name, value in {**figures(timing), **done, **per_call(work), **found}.items():
            self.measure(name, value)
        self.measure("latency_us", timing.latencies_us)
        for name, series in (("peer_us", timing.peers_us), ("device_us", timing.device_us)):
            if series:
                self.measure(name, series)
        if choice := self.comparison.choice:
            # What a baseline has is of the clock that counts.
            counts = "device_us" if timing.device_us else "latency_us"
            if runs := choice.baseline.benchmarks.get(self.case_id):
                self.measure(f"baseline_{counts}", pooled_us(runs))
        profile = profile_of(make(self.device.torch_device()), self.device)
        for name, value in profile.times_us.items():
            self.measure(f"{PREFIX}{name}", value)
        remarks = (*conditions.remarks(found), *clock_remarks(timing), *profile.remarks)
        verdict = self.comparison.of_same_work(self.case_id, per_call(work)).verdict(
            self.case_id,
            _estimate(timing),
            lambda: self._again(timed),
            remarks=remarks,
            profile=profile.times_us,
        )
        if verdict is not None:
            self.note(verdict.as_whole().to_dict())
        return timing

    def _again(self, timed: Callable[[], Timing]) -> Estimate:
        with one_thread(self.device):
            return _estimate(timed())

    def _card(self, make: Make) -> dict[str, float]:
        """Ask how the card is while it works: an idle one has a lower clock than it computes with."""
        if self.device.kind != "npu" or self.device.emulated or self.card is None:
            return {}
        work = make(self.device.torch_device())

        def some_work() -> None:
            work()
            self.device.synchronize()

        return conditions.card_conditions(self.card, some_work)


def _estimate(timing: Timing) -> Estimate:
    return estimate(timing.device_us or timing.latencies_us, timing.peers_us)


def figures(timing: Timing) -> dict[str, float]:
    """Return the percentiles of the latency, and the time of the first call, by name."""
    times = np.asarray(timing.latencies_us)
    found = {name: float(np.percentile(times, percent)) for name, percent in PERCENTILES.items()}
    device = {"device_p50_us": float(np.median(timing.device_us))} if timing.device_us else {}
    return {**found, **device, "first_call_us": timing.first_us, "calls_per_round": float(timing.calls)}


#: What one call does, by the names of its measurements.
WORK = ("items_per_call", "gflop_per_call", "moved_bytes_per_call")


def per_call(work: Work) -> dict[str, float]:
    """Return what one call does, by name, as far as it is known."""
    known = zip(WORK, (work.items, work.flop * 1e-9, work.moved_bytes), strict=True)
    return {name: value for name, value in known if value}


def achieved(timing: Timing, work: Work, chip: str) -> dict[str, float]:
    """Return what was done in a second at the median latency, and its share of what the chip can do."""
    seconds = float(np.median(timing.device_us or timing.latencies_us)) * 1e-6
    rates = {
        "throughput_items_per_s": work.items / seconds,
        "compute_gflop_per_s": work.flop / seconds * 1e-9,
        "traffic_gb_per_s": work.moved_bytes / seconds * 1e-9,
    }
    shares = shares_of_peak(chip, work.dtype, work.flop / seconds, work.moved_bytes / seconds)
    return {name: value for name, value in {**rates, **shares}.items() if value}


def clock_remarks(timing: Timing) -> tuple[str, ...]:
    """Say where the device's clock tells more than the host waited: one of them is wrong."""
    if not timing.device_us:
        return ()
    device, host = float(np.median(timing.device_us)), float(np.median(timing.latencies_us))
    if device <= host * (1 + CLOCKS_AGREE):
        return ()
    return (f"the device's clock says {device:.0f} us, and the host waited {host:.0f} us: one of the clocks is wrong",)
