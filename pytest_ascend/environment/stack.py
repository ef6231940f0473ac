"""The combination under test, as far as it can be known without importing any of it."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass

from pytest_ascend.environment import evidence
from pytest_ascend.environment.evidence import ASCEND, COMPONENTS, Evidence, field
from pytest_ascend.environment.machine import PATIENT_S, Machine, Package, Tree, installed, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi, parse
from pytest_ascend.environment.signs import EMULATED_CANN_VARIABLE
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.records.case import Stack
from pytest_ascend.system.version import __version__

#: Variables set by set_env.sh: the CANN that the process uses takes precedence over others on the disk.
VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")


@dataclass(frozen=True, slots=True)
class CannHome:
    """One CANN: ``path`` as it was named, ``target`` with links resolved, ``source`` where the path was found."""

    path: str
    target: str
    source: str


def homes(machine: Machine) -> tuple[CannHome, ...]:
    """Return every CANN on the machine once; the one that this process would use comes first."""
    # Contents of a folder with a CANN; an empty folder, left by an uninstaller, has none of them.
    signs = {"version.cfg", "opp", "runtime", "compiler", "lib64", "aarch64-linux", "x86_64-linux", "share", "toolkit"}
    named = ((machine.environ.get(name, ""), name) for name in VARIABLES)
    candidates = [(path.rstrip("/"), name) for path, name in named if path.startswith("/")]
    for root in roots(machine):
        # The newest layout comes first, then versions that are installed side by side.
        layouts = ("cann", "ascend-toolkit/latest", "nnae/latest", "nnrt/latest")
        candidates += [(f"{root}/{layout}", root) for layout in layouts]
        for folder, prefix in (("", "cann-"), ("ascend-toolkit", ""), ("nnae", "")):
            parent = f"{root}/{folder}".rstrip("/")
            versions = [name for name in machine.tree.names(parent) if name.startswith(prefix)]
            candidates += [(f"{parent}/{name}", root) for name in versions if name.removeprefix(prefix)[:1].isdigit()]
    found: dict[str, CannHome] = {}
    for path, source in candidates:
        target = machine.tree.target(path)
        if machine.tree.is_folder(path) and signs.intersection(machine.tree.names(path)):
            found.setdefault(target, CannHome(path, target, source))
    return tuple(found.values())


def roots(machine: Machine) -> tuple[str, ...]:
    """Return the folders "Ascend" that may contain CANN: the system's, the user's, and the recorded one."""
    environ = machine.environ
    owned = [f"{environ[name].rstrip('/')}/Ascend" for name in ("HOME", "CONDA_PREFIX") if environ.get(name)]
    recorded = field(machine.tree.read("/etc/Ascend/ascend_cann_install.info").content, "Install_Path")
    return tuple(dict.fromkeys((ASCEND, *owned, *([recorded.rstrip("/")] if recorded.startswith("/") else []))))


def driver_root(machine: Machine) -> str:
    """Return the folder of driver and firmware: the recorded one, else the usual one."""
    text = machine.tree.read("/etc/ascend_install.info").content
    return field(text, "Driver_Install_Path_Param").rstrip("/") or ASCEND


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a stack. ``version`` is "" if unknown; the first evidence is the best."""

    name: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def version(self) -> str:
        """Return the version by the best evidence; public versions take precedence over CANN's internal ones."""
        public = [each.value for each in self.evidence if not each.internal]
        return next(iter(public or [each.value for each in self.evidence]), "")

    @property
    def disagreeing(self) -> tuple[Evidence, ...]:
        """Return the evidence that contradicts the best."""
        return tuple(each for each in self.evidence if not each.internal and not same(each.value, self.version))


def gather(
    machine: Machine, home: CannHome | None, packages: dict[str, Package], npu_smi: NpuSmi
) -> dict[str, Component]:
    """Return every component by name, including unknown ones."""
    found = (
        *evidence.hardware(machine, driver_root(machine), npu_smi),
        *(evidence.cann(machine, home.path) if home else ()),
        *evidence.software(machine, packages),
    )
    return {name: Component(name, tuple(each for each in found if each.component == name)) for name in COMPONENTS}


def same(one: str, other: str) -> bool:
    """Return whether two texts are the same version, regardless of case and of a local suffix ("+cpu")."""
    one, other = one.partition("+")[0], other.partition("+")[0]
    if is_version(one) and is_version(other):
        return Version(one) == Version(other)
    return one == other


#: The distributions that are part of a stack.
NAMED = frozenset({"torch", "torch-npu", *evidence.LIBRARIES})


def collect(device: str, *, emulated: bool, chip: str, machine: Machine | None = None) -> Stack:
    """Describe the stack that computes: ``device`` is torch's device type. An emulated CANN is labelled as such.

    ``machine`` is the machine to examine, by default this one.
    """
    npu = device == "npu"
    hardware = npu and not emulated
    here = machine or this_machine(limit_s=0)
    components = gather(here, next(iter(homes(here)), None), installed(here, NAMED), NpuSmi())
    version = {name: each.version for name, each in components.items()}
    driver = cann = ""
    if hardware:
        cann = version[evidence.TOOLKIT] or version[evidence.RUNTIME]
        driver = version[evidence.DRIVER]
        if not driver:  # in a container the driver's own file may not be mounted, and npu-smi reports the driver in use
            running = parse((machine or this_machine(limit_s=PATIENT_S)).npu_smi().text).driver
            driver = running if is_version(running) else ""
    elif emulated:
        cann = f"emulated {os.environ.get(EMULATED_CANN_VARIABLE, '')}".strip()
    cpu = re.search(r"^model name\s*:\s*(.+)$", Tree().read("/proc/cpuinfo").content, re.MULTILINE)
    return Stack(
        device=device,
        emulated=emulated,
        chip=chip,
        driver=driver,
        firmware=version[evidence.FIRMWARE] if hardware else "",
        cann=cann,
        torch=version[evidence.TORCH],
        torch_npu=version[evidence.TORCH_NPU] if npu else "",
        # Version numbers of torch_npu have been used twice; the commit identifies it.
        torch_npu_commit=version[evidence.COMMIT] if npu else "",
        nnal=version[evidence.NNAL] if hardware else "",
        **{name.replace("-", "_"): version[name] if npu else "" for name in evidence.LIBRARIES},
        python=platform.python_version(),
        os=platform.platform(),
        host=f"{platform.machine()}, {os.cpu_count()} CPUs{f', {cpu[1]}' if cpu else ''}",
        pytest_ascend=__version__,
    )
