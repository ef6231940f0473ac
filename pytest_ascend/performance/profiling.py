"""Time by operator: shown with a benchmark that became slower."""

from __future__ import annotations

import csv
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ascend.device import Device

#: Calls that are profiled at most, within PATIENCE_S: their minimum counts, as for times.
CALLS, PATIENCE_S = 3, 0.2
#: Prefixes of measurements, and of operators whose time is the NPU's.
PREFIX, ON_NPU = "profile_us_", "npu:"
#: torch_npu.profiler's file for each operator of torch, and the columns that are used.
TABLE, NAME, TAKEN = "operator_details.csv", "Name", "Device Self Duration(us)"


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
        tables = list(Path(folder).rglob(TABLE))
        if not tables:
            raise FileNotFoundError(f"it wrote no {TABLE}")
        found: dict[str, float] = {}
        with tables[0].open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):  # a table of another format raises KeyError or ValueError
                if (taken := float(row[TAKEN])) > 0:
                    found[ON_NPU + row[NAME]] = found.get(ON_NPU + row[NAME], 0.0) + taken
    if not found:
        raise ValueError(f"{TABLE} has no operator that took time on the NPU")
    return found


def became_slower(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return a line for each operator that takes longer than before, worst first.

    If the profiles are by different clocks, only the present one is listed.
    """
    if before and now and not set(now) & set(before):
        why = "the baseline has no profile of this kind"
        return [f"operator {name}: {taken:.0f} us; {why}" for name, taken in now.items()]
    grown = {name: now[name] - before.get(name, 0.0) for name in now}
    worst = sorted((name for name in grown if before and grown[name] > 0), key=grown.__getitem__, reverse=True)
    return [f"operator {name}: {before.get(name, 0.0):.0f} -> {now[name]:.0f} us" for name in worst]
