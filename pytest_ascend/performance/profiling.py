"""Where the time of a piece of work goes, by operator: what stands beside a benchmark that became slower."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

#: Operators that are kept of a profile, the most expensive first.
KEPT = 12
#: Calls that are profiled at most, within PATIENCE_S: the least of them counts, as with times.
CALLS, PATIENCE_S = 3, 0.2

PREFIX = "profile_us_"


def profile_of(call: Callable[[], object]) -> dict[str, float]:
    """Give the microseconds that each operator takes in one call, itself and no operator inside it, by aten's name.

    They are the host's: of a device that computes by itself, what launching costs.
    """
    # Kineto, below torch's profiler, writes a line on each start and stop.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    from torch.profiler import ProfilerActivity, profile

    found: dict[str, float] = {}
    begin = time.perf_counter()
    for _ in range(CALLS):
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            call()
        times = {each.key: float(each.self_cpu_time_total) for each in profiler.key_averages() if "::" in each.key}
        found = {name: min(taken, found.get(name, taken)) for name, taken in times.items()}
        if time.perf_counter() - begin > PATIENCE_S:
            break
    longest = sorted(found, key=found.__getitem__, reverse=True)[:KEPT]
    return {name: found[name] for name in longest}


def became_slower(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Say which operators take longer than before, worst first, in a line each."""
    grown = {name: now[name] - before.get(name, 0.0) for name in now}
    worst = sorted((name for name in grown if before and grown[name] > 0), key=grown.__getitem__, reverse=True)
    return [f"operator {name}: {before.get(name, 0.0):.0f} -> {now[name]:.0f} us" for name in worst]
