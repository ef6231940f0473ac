"""How long something takes on a device, waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_ascend.device import Device


def latencies_us(call: Callable[[], object], device: Device, *, rounds: int, warm_ups: int = 2) -> tuple[float, ...]:
    """Call ``call`` so often and give the time of each round in us, the wait for the device included.

    The ``warm_ups`` before are not counted: the first calls load or compile kernels.
    """
    for _ in range(warm_ups):
        call()
    device.synchronize()
    return tuple(_latency_us(call, device) for _ in range(rounds))


def _latency_us(call: Callable[[], object], device: Device) -> float:
    start = time.perf_counter_ns()
    call()
    device.synchronize()
    return (time.perf_counter_ns() - start) / 1000
