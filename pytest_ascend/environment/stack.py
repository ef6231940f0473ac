"""The combination under test, as far as it can be told without importing any of it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ascend import __version__
from pytest_ascend.environment import evidence
from pytest_ascend.environment.evidence import ASCEND, COMPONENTS, Evidence, field
from pytest_ascend.environment.machine import PATIENT_S, Machine, Package, installed, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi, parse
from pytest_ascend.environment.signs import EMULATED_CANN_VARIABLE
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.records.case import Stack

#: What set_env.sh sets: the process's own word, which counts before anything on the disk.
VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")

#: Below a folder "Ascend", the newest layout first; then what versions lie beside.
_LAYOUTS = ("cann", "ascend-toolkit/latest", "nnae/latest", "nnrt/latest")
_SIBLINGS = (("", "cann-"), ("ascend-toolkit", ""), ("nnae", ""))

_RECORD = "/etc/Ascend/ascend_cann_install.info"


@dataclass(frozen=True, slots=True)
class CannHome:
    """One CANN: ``path`` as it was named, ``target`` where its links lead, ``source`` what named it."""

    path: str
    target: str
    source: str


def homes(machine: Machine) -> tuple[CannHome, ...]:
    """Return every CANN on the machine once, the one that this process would use first."""
    found: dict[str, CannHome] = {}
    for path, source in _candidates(machine):
        target = machine.tree.target(path)
        if machine.tree.is_folder(path) and _is_home(machine, path):
            found.setdefault(target, CannHome(path, target, source))
    return tuple(found.values())


def roots(machine: Machine) -> tuple[str, ...]:
    """Return the folders "Ascend" in which CANN may be: the system's, the user's, and the one on record."""
    environ = machine.environ
    owned = [f"{environ[name].rstrip('/')}/Ascend" for name in ("HOME", "CONDA_PREFIX") if environ.get(name)]
    recorded = field(machine.tree.read(_RECORD).content, "Install_Path")
    return tuple(dict.fromkeys((ASCEND, *owned, *([recorded.rstrip("/")] if recorded.startswith("/") else []))))


def driver_root(machine: Machine) -> str:
    """Return the folder in which driver and firmware are: the one on record, else the usual one."""
    text = machine.tree.read("/etc/ascend_install.info").content
    return field(text, "Driver_Install_Path_Param").rstrip("/") or ASCEND


def _candidates(machine: Machine) -> Iterator[tuple[str, str]]:
    named = ((machine.environ.get(name, ""), name) for name in VARIABLES)
    yield from ((path.rstrip("/"), name) for path, name in named if path.startswith("/"))
    for root in roots(machine):
        yield from ((f"{root}/{layout}", root) for layout in _LAYOUTS)
        for folder, prefix in _SIBLINGS:
            parent = f"{root}/{folder}".rstrip("/")
            yield from ((f"{parent}/{name}", root) for name in machine.tree.names(parent) if _is_version(name, prefix))


def _is_version(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix)[:1].isdigit()


def _is_home(machine: Machine, path: str) -> bool:
    """Whether it looks like a CANN: an empty folder, left by an uninstaller, is none."""
    signs = {"version.cfg", "opp", "runtime", "compiler", "lib64", "aarch64-linux", "x86_64-linux", "share", "toolkit"}
    return bool(signs.intersection(machine.tree.names(path)))


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a stack. ``version`` is "" where nothing speaks of it; the first evidence is the best."""

    name: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def version(self) -> str:
        """The version that the best evidence gives, public ones before CANN's internal count."""
        public = [each.value for each in self.evidence if not each.internal]
        return next(iter(public or [each.value for each in self.evidence]), "")

    @property
    def disagreeing(self) -> tuple[Evidence, ...]:
        """The evidence that says something else than the best."""
        return tuple(each for each in self.evidence if not each.internal and not same(each.value, self.version))


def gather(machine: Machine, home: CannHome | None, packages: dict[str, Package], said: NpuSmi) -> dict[str, Component]:
    """Return every component by name, unknown ones included."""
    found = tuple(_all(machine, home, packages, said))
    return {name: Component(name, tuple(each for each in found if each.component == name)) for name in COMPONENTS}


def same(one: str, other: str) -> bool:
    """Whether two texts are one version: a build's own ending ("+cpu") says nothing, nor does case."""
    one, other = one.partition("+")[0], other.partition("+")[0]
    if is_version(one) and is_version(other):
        return Version(one) == Version(other)
    return one == other


def _all(machine: Machine, home: CannHome | None, packages: dict[str, Package], said: NpuSmi) -> Iterator[Evidence]:
    parts: Iterable[Iterable[Evidence]] = (
        evidence.told_by_npu_smi(said),
        evidence.driver(machine, driver_root(machine)),
        evidence.cann(machine, home.path) if home else (),
        evidence.atb(machine),
        evidence.python_packages(machine, packages),
        evidence.host(machine),
    )
    for part in parts:
        yield from part


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
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text("utf-8", "replace"), flags=re.MULTILINE)
    except OSError:
        return ""
    return f", {match[1]}" if match else ""
