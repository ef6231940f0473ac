"""The combination under test, as far as it can be told without importing any of it."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

from pytest_ascend import __version__
from pytest_ascend.environment.cann import cann_version, driver_version, firmware_version
from pytest_ascend.records.stack import Stack


def collect(device: str, *, emulated: bool, chip: str) -> Stack:
    """Describe what computes: ``device`` is torch's device type. An emulated CANN is called so."""
    npu = device == "npu"
    hardware = npu and not emulated
    return Stack(
        device=device,
        emulated=emulated,
        chip=chip,
        driver=driver_version() if hardware else "",
        firmware=firmware_version() if hardware else "",
        cann=cann_version() if hardware else "emulated" if emulated else "",
        torch=_installed("torch"),
        torch_npu=_installed("torch-npu") if npu else "",
        torch_npu_commit=_torch_npu_commit() if npu else "",
        python=platform.python_version(),
        os=platform.platform(),
        host=f"{platform.machine()}, {os.cpu_count()} CPUs{_cpu_name()}",
        pytest_ascend=__version__,
    )


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _torch_npu_commit() -> str:
    """Give the commit that torch_npu was built from: version numbers of it have been used twice."""
    try:
        files = metadata.files("torch-npu") or []
        version = next(file for file in files if file.as_posix() == "torch_npu/version.py")
        match = re.search(r"git_version\s*=\s*['\"]([0-9a-f]{7,40})['\"]", version.read_text())
    except (metadata.PackageNotFoundError, StopIteration, OSError):
        return ""
    return match[1] if match else ""


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), flags=re.MULTILINE)
    except OSError:
        return ""
    return f", {match[1]}" if match else ""
