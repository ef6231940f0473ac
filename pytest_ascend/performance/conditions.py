"""Under what conditions a run measured: load of the host, clock, temperature and power of the card."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_ascend.environment.identity import Identity
from pytest_ascend.system.programs import run

#: More than this share of the processors wanted by others makes a machine busy.
BUSY_LOAD = 0.5
#: A clock below this share of its rated one is throttled.
THROTTLED = 0.95
#: How long npu-smi may take; it waits for a driver that may hang.
ANSWER_S = 5.0

#: What ``npu-smi info -t common`` calls it -> the name of the measurement.
CARD = {
    "NPU Real-time Power(W)": "npu_power_w",
    "Temperature(C)": "npu_temperature_c",
    "Aicore curFreq(MHZ)": "npu_frequency_mhz",
    "Aicore Freq(MHZ)": "npu_rated_frequency_mhz",
}


def host_conditions(loadavg: Path = Path("/proc/loadavg")) -> dict[str, float]:
    """Return the load per processor over the last minute; nothing where the system does not tell."""
    try:
        return {"host_load_per_cpu": float(loadavg.read_text(encoding="ascii").split()[0]) / (os.cpu_count() or 1)}
    except (OSError, ValueError, IndexError):
        return {}


def card_conditions(card: Identity, work: Callable[[], object] | None = None) -> dict[str, float]:
    """Ask npu-smi for power, temperature and clock of a card; nothing where it is not there or does not answer.

    A card that has nothing to do lowers its clock: ``work`` is called again and again until the answer is there.
    """
    program = shutil.which("npu-smi")
    if program is None or card.npu < 0:
        return {}
    # The 950 takes no -c; a card of an Atlas A3 is one NPU with two chips.
    which = ["-i", str(card.npu), *(["-c", str(card.chip)] if card.chip >= 0 else [])]
    with ThreadPoolExecutor(max_workers=1) as executor:
        asked = executor.submit(run, [program, "info", "-t", "common", *which], os.environ, ANSWER_S)
        while work is not None and not asked.done():
            work()
    return dict(_figures(asked.result().text))


def _figures(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        number = re.match(r"\s*(\d+(\.\d+)?)\s*$", value)
        if name.strip() in CARD and number:
            yield CARD[name.strip()], float(number[1])


def remarks(conditions: Mapping[str, float]) -> tuple[str, ...]:
    """Say what makes times of such a machine doubtful, in sentences."""
    found = []
    load = conditions.get("host_load_per_cpu", 0.0)
    # One processor is ours.
    if load - 1 / (os.cpu_count() or 1) > BUSY_LOAD:
        found.append(f"the machine was busy: {load:.1f} processes wanted each of its {os.cpu_count()} processors")
    clock, rated = conditions.get("npu_frequency_mhz", 0.0), conditions.get("npu_rated_frequency_mhz", 0.0)
    if rated and clock < THROTTLED * rated:
        found.append(f"the card was throttled: {clock:.0f} of {rated:.0f} MHz")
    return tuple(found)
