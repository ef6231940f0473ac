"""The time of work on a device: with warm-up, synchronisation and a peer, through pytest-benchmark.

A round calls the work once, or as often as fits ROUND_US, and waits for the device. Garbage is collected before the
rounds and not during them (pytest-benchmark's ``--benchmark-disable-gc`` is not needed). The first call, which loads
and compiles kernels, is timed separately.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_ascend.device import Device
from pytest_ascend.system.programs import without_garbage_collection

if TYPE_CHECKING:
    import torch

#: Runs the work once.
Call: TypeAlias = Callable[[], object]
#: Prepares the work on a device: creates weights and inputs, untimed.
Make: TypeAlias = "Callable[[torch.device], Call]"

#: In us. A shorter round would mostly measure the clock and the synchronisation.
ROUND_US = 200.0
#: A device is warm when the median of this many rounds is within STABLE of that of the previous ones.
WARM_ROUNDS, STABLE = 5, 0.02
#: Least and greatest number of rounds. The run log does not accept longer series.
FEWEST, MOST = 5, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Measured times, in us per call. ``peers_us`` is empty without a peer, ``device_us`` without a device's clock."""

    first_us: float
    calls: int
    latencies_us: tuple[float, ...]
    peers_us: tuple[float, ...] = ()
    device_us: tuple[float, ...] = ()


@dataclass(kw_only=True, slots=True)
class Rounds:
    """The work of one round on the device, preceded by the peer's round.

    ``before`` and ``run`` are called in turn, by pytest-benchmark or by a plain loop, see :func:`timed`.
    """

    call: Call
    device: Device
    calls: int = 1
    peer: Call | None = None
    peers_us: list[float] = field(default_factory=list)
    device_us: list[float] = field(default_factory=list)
    #: Prepares the work and its peer again, every ``every`` rounds.
    anew: Callable[[], tuple[Call, Call | None]] | None = None
    every: int = 0

    def before(self) -> None:
        """Time the peer's round, and periodically prepare the work again."""
        if self.anew is not None and self.peers_us and len(self.peers_us) % self.every == 0:
            self.call, self.peer = self.anew()
        if self.peer is not None:
            start = time.perf_counter_ns()
            for _ in itertools.repeat(None, self.calls):
                self.peer()
            self.peers_us.append((time.perf_counter_ns() - start) / 1000 / self.calls)

    def run(self, *, between_events: bool = False) -> None:
        """Run the work and wait for it; ``between_events`` also times it by the device's own clock, if it has one."""
        events = self.device.events() if between_events else None
        if events:
            events[0].record()
        call = self.call
        for _ in itertools.repeat(None, self.calls):
            call()
        if events:
            events[1].record()
        self.device.synchronize()
        if events:
            self.device_us.append(events[0].elapsed_time(events[1]) * 1e3 / self.calls)


def shares_the_host(device: Device) -> bool:
    """Return whether the device's work runs on the processor that the rest of the machine uses."""
    return device.emulated or device.kind == "cpu"


def one_thread(device: Device) -> contextlib.AbstractContextManager[None]:
    """Limit torch to one thread if the host computes: with more, other processes determine the time."""
    from pytest_ascend.system import dispatching

    return dispatching.one_thread() if shares_the_host(device) else contextlib.nullcontext()


def time_rounds(
    make: Make, device: Device, *, budget_s: float, fewest: int = FEWEST, benchmark: Any = None, preparations: int = 1
) -> Timing:
    """Time the work that ``make`` prepares, for about ``budget_s`` seconds and in ``fewest`` rounds at least.

    ``benchmark`` is the fixture of pytest-benchmark that records the rounds; without it they are timed by a plain loop.
    With a peer, the work is prepared ``preparations`` times during the rounds: its address in memory changes the speed
    of a processor by up to ten per cent.
    """
    call, peer = _prepared(make, device)
    device.synchronize()
    first_us = _first_us(call, device)
    if peer is not None:
        peer()
    # The calls of a round are as many as the quickest of a few calls allows. Work that takes long is called once,
    # however quick the next call may be.
    quickest_us = _first_us(call, device)
    if quickest_us <= 100 * ROUND_US:
        quickest_us = min(quickest_us, _first_us(call, device), _first_us(call, device))
    calls = max(1, math.ceil(ROUND_US / quickest_us))
    rounds = Rounds(call=call, device=device, calls=calls, peer=peer)
    # After three tenths of the budget, the device counts as warm in any case.
    count = _count(_warm_up(rounds, budget_s * 0.3), budget_s, fewest)
    rounds.peers_us.clear()
    if preparations > 1:
        # Prepare the work at other addresses: earlier preparations are kept until the end.
        kept = [(rounds.call, rounds.peer)]

        def anew() -> tuple[Call, Call | None]:
            kept.append(_prepared(make, device))
            return kept[-1]

        rounds.anew, rounds.every = anew, math.ceil(count / preparations)
    gc.collect()
    run = functools.partial(rounds.run, between_events=not shares_the_host(device))
    seconds = timed(rounds, run, count, benchmark)
    return Timing(
        first_us=first_us,
        calls=rounds.calls,
        latencies_us=tuple(each * 1e6 / rounds.calls for each in seconds),
        peers_us=tuple(rounds.peers_us),
        device_us=tuple(rounds.device_us),
    )


def _prepared(make: Make, device: Device) -> tuple[Call, Call | None]:
    """Return the work on the device, and the peer: the same work on the CPU if the device shares the processor."""
    import torch

    has_peer = shares_the_host(device) and device.kind != "cpu"
    return make(device.torch_device()), make(torch.device("cpu")) if has_peer else None


def timed(rounds: Rounds, run: Call, count: int, benchmark: Any = None) -> list[float]:
    """Return the seconds of ``count`` rounds; pytest-benchmark's fixture records them if it is given."""
    seconds = []
    with without_garbage_collection():
        if benchmark is not None:
            benchmark.extra_info["calls_per_round"] = rounds.calls
            benchmark.pedantic(run, setup=rounds.before, rounds=count)
            return [float(each) for each in benchmark.stats.stats.data]
        for _ in range(count):
            rounds.before()
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return seconds


def _first_us(call: Call, device: Device) -> float:
    start = time.perf_counter_ns()
    call()
    device.synchronize()
    return (time.perf_counter_ns() - start) / 1000


def _warm_up(rounds: Rounds, budget_s: float) -> float:
    """Run until consecutive rounds take equally long; return the seconds of a round, including its peer."""
    seconds: list[float] = []
    begin, is_warm = time.perf_counter(), False
    while not is_warm and time.perf_counter() - begin < budget_s:
        seconds.extend(timed(rounds, rounds.run, 1))
        last, before = seconds[-WARM_ROUNDS:], seconds[-2 * WARM_ROUNDS : -WARM_ROUNDS]
        is_warm = len(before) == WARM_ROUNDS and abs(median(last) / median(before) - 1) < STABLE
    return (time.perf_counter() - begin) / len(seconds)


def _count(round_s: float, budget_s: float, fewest: int) -> int:
    return min(MOST, max(fewest, int(budget_s / round_s)))
