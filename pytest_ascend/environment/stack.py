"""The combination under test, as far as it can be told without importing any of it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from pytest_ascend import __version__
from pytest_ascend.environment import evidence
from pytest_ascend.environment.components import Component, gather, homes
from pytest_ascend.environment.machine import PATIENT_S, Machine, installed, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi, parse
from pytest_ascend.environment.signs import EMULATED_CANN_VARIABLE
from pytest_ascend.environment.versions import is_version
from pytest_ascend.records.stack import Stack

#: The distributions that a stack names.
NAMED = frozenset({"torch", "torch-npu"})


def collect(device: str, *, emulated: bool, chip: str, machine: Machine | None = None) -> Stack:
    """Describe what computes: ``device`` is torch's device type. An emulated CANN is called so.

    ``machine`` is the one to look at, by default this one.
    """
    npu = device == "npu"
    hardware = npu and not emulated
    version = {name: each.version for name, each in _components(machine or this_machine(limit_s=0)).items()}
    return Stack(
        device=device,
        emulated=emulated,
        chip=chip,
        driver=version[evidence.DRIVER] or _running_driver(machine or this_machine(limit_s=PATIENT_S))
        if hardware
        else "",
        firmware=version[evidence.FIRMWARE] if hardware else "",
        cann=version[evidence.TOOLKIT] or version[evidence.RUNTIME]
        if hardware
        else _emulated_cann()
        if emulated
        else "",
        torch=version[evidence.TORCH],
        torch_npu=version[evidence.TORCH_NPU] if npu else "",
        # Version numbers of torch_npu have been used twice; the commit tells which.
        torch_npu_commit=version[evidence.COMMIT] if npu else "",
        python=platform.python_version(),
        os=platform.platform(),
        host=f"{platform.machine()}, {os.cpu_count()} CPUs{_cpu_name()}",
        pytest_ascend=__version__,
    )


def _emulated_cann() -> str:
    """Return what the emulated CANN of this process is called, with the release that it answers as."""
    return f"emulated {os.environ.get(EMULATED_CANN_VARIABLE, '')}".strip()


def _running_driver(machine: Machine) -> str:
    """Return the driver that npu-smi speaks to: in a container the driver's own file may not be mounted."""
    said = parse(machine.npu_smi().text).driver
    return said if is_version(said) else ""


def _components(machine: Machine) -> dict[str, Component]:
    home = next(iter(homes(machine)), None)
    return gather(machine, home, installed(machine, NAMED), NpuSmi())


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), flags=re.MULTILINE)
    except OSError:
        return ""
    return f", {match[1]}" if match else ""
