"""Versions of CANN, driver and firmware, from the files that their installers leave. Unknown is "", never an error."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Where CANN may be, the process's own variables first, then the newest layout first.
VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
FOLDERS = (
    "usr/local/Ascend/cann",
    "usr/local/Ascend/ascend-toolkit/latest",
    "usr/local/Ascend/nnae/latest",
    "usr/local/Ascend/nnrt/latest",
)

#: Files below such a folder, and how each spells the version that users know; the best evidence first.
EVIDENCE = (
    ("{arch}-linux/ascend_toolkit_install.info", r"^version=(?P<version>\S+)"),
    ("{arch}-linux/ascend_nnae_install.info", r"^version=(?P<version>\S+)"),
    ("{arch}-linux/ascend_nnrt_install.info", r"^version=(?P<version>\S+)"),
    ("version.cfg", r"^toolkit_running_version=\[[^:\]]*:(?P<version>[^\]]+)\]"),
    ("version.cfg", r"^runtime_running_version=\[[^:\]]*:(?P<version>[^\]]+)\]"),
)

#: ``package_version`` is the one that releases are named by; older drivers have ``Version`` only.
PACKAGE = (r"^package_version=(?P<version>\S+)", r"^Version=(?P<version>\S+)")


def cann_version(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str:
    """Give the version of the CANN that this process would use, such as "8.3.RC1"."""
    return next((found for folder in _folders(environ, root) if (found := _version_in(folder))), "")


def driver_version(root: Path = Path("/")) -> str:
    """Give the version of the driver, such as "25.5.1"; in a container it is the host's."""
    return _package_version(root / "usr/local/Ascend/driver/version.info")


def firmware_version(root: Path = Path("/")) -> str:
    """Give the version of the firmware, which containers seldom see."""
    return _package_version(root / "usr/local/Ascend/firmware/version.info")


def _folders(environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    yield from (Path(environ[name]) for name in VARIABLES if environ.get(name))
    yield from (root / folder for folder in FOLDERS)


def _version_in(folder: Path) -> str:
    for name, pattern in EVIDENCE:
        if found := _search(folder / name.format(arch=platform.machine()), pattern):
            return found
    return ""


def _package_version(path: Path) -> str:
    return next((found for pattern in PACKAGE if (found := _search(path, pattern))), "")


def _search(path: Path, pattern: str) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(pattern, text, flags=re.MULTILINE)
    return match["version"].strip('"') if match else ""
