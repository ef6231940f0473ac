"""Versions of every component, each statement with where it was read. A component may have several.

Nothing is imported, and only npu-smi started: versions are in files, and identifying a broken part must not load it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_ascend.environment.machine import Machine, Package
from pytest_ascend.environment.npu_smi import NpuSmi, soc
from pytest_ascend.environment.versions import is_version


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement: the version of a ``component`` ("CANN toolkit"), and its source.

    ``internal`` numbers are CANN's own numbering (7.6.0.1.220); they cannot be compared with the public ones.
    """

    component: str
    value: str
    source: str
    internal: bool = False


#: Components in the order in which users ask for them.
CHIP, DRIVER, FIRMWARE = "chip", "driver", "firmware"
TOOLKIT, OPS, RUNTIME, COMPILER, HCCL = "CANN toolkit", "CANN ops", "CANN runtime", "CANN compiler", "CANN hccl"
OPP, KERNELS, NNAL = "CANN opp", "CANN opp_kernel", "NNAL (ATB)"
TORCH, TORCH_NPU, COMMIT = "torch", "torch_npu", "torch_npu commit"
#: Distributions other than torch_npu that compute on an NPU: Triton's compiler, and libraries of operators.
LIBRARIES = ("triton-ascend", "vllm-ascend", "sgl-kernel-npu")
PYTHON, SYSTEM, ARCH = "Python", "OS", "architecture"
COMPONENTS = (
    *(CHIP, DRIVER, FIRMWARE, TOOLKIT, OPS, RUNTIME, COMPILER, HCCL, OPP, KERNELS, NNAL),
    *(TORCH, TORCH_NPU, COMMIT, *LIBRARIES, PYTHON, SYSTEM, ARCH),
)

#: Parts of CANN, by their names in version.cfg.
PARTS = {each.removeprefix("CANN "): each for each in (TOOLKIT, RUNTIME, COMPILER, HCCL, OPP, KERNELS)}

#: Components by their names in ``ascend_NAME_install.info``. A chip's operators are ``ascend_910b-ops``.
_INSTALLED = {"toolkit": TOOLKIT, "nnae": TOOLKIT, "nnrt": TOOLKIT, "ops": OPS}

ASCEND = "/usr/local/Ascend"
ATB = (f"{ASCEND}/nnal/atb/latest/version.info", f"{ASCEND}/nnal/atb/version.info")


def field(text: str, name: str) -> str:
    """Return the value of ``name=`` in an installer's file, without quotes; "" if there is no such line."""
    found = re.search(rf"^{re.escape(name)}\s*[=:]\s*(.*?)\s*$", text, re.MULTILINE)
    return found[1].strip("\"'") if found else ""


def hardware(machine: Machine, folder: str, output: NpuSmi) -> Iterator[Evidence]:
    """Yield the driver and chips that npu-smi shows, and the versions in files of driver and firmware."""
    yield from _known(DRIVER, output.driver, "npu-smi info")
    for name in dict.fromkeys(chip.name for chip in output.chips):
        if re.fullmatch(r"[\w-]{1,32}", name, re.ASCII):
            yield Evidence(CHIP, soc(name), "npu-smi info")
    path = f"{folder}/driver/version.info"
    text = machine.tree.read(path).content
    # Releases have a ``package_version``.
    yield from _known(DRIVER, field(text, "package_version") or field(text, "Version"), path)
    path = f"{folder}/firmware/version.info"
    yield from _known(FIRMWARE, field(machine.tree.read(path).content, "Version"), path)


def cann(machine: Machine, home: str) -> Iterator[Evidence]:
    """Yield the versions of a CANN's parts: from the installer's records, version.cfg, and each part's own file."""
    for folder in (f"{home}/aarch64-linux", f"{home}/x86_64-linux"):
        for name in machine.tree.names(folder):
            found = re.fullmatch(r"ascend_([\w.-]+)_install\.info", name)
            kind = found[1] if found else ""
            component = _INSTALLED.get(kind) or (OPS if kind.endswith(("-ops", "_ops", "_kernels")) else "")
            if component:
                path = f"{folder}/{name}"
                yield from _known(component, field(machine.tree.read(path).content, "version"), path)
    path = f"{home}/version.cfg"
    text = machine.tree.read(path).content
    running = re.findall(r"^(\w+)_running_version=\[([^:\]\n]*):([^\]\n]+)\]", text, re.MULTILINE)
    for part, _, public in running:
        if part in PARTS:
            yield from _known(PARTS[part], public, f"{path} ({part}_running_version)")
    public_of = {internal: public for _, internal, public in running}
    for part, component in PARTS.items():
        # Files with the version of a part of CANN: before 8.5, and from 8.5 on.
        for path in (f"{home}/{part}/version.info", f"{home}/share/info/{part}/version.info"):
            text = machine.tree.read(path).content
            number = field(text, "Version")
            # Before 9.0 its ``Version`` is internal; version_dir or version.cfg have the public one.
            if public := field(text, "version_dir") or public_of.get(number, ""):
                yield from _known(component, public, path)
            elif is_version(number):
                yield Evidence(component, number, path, internal=number.count(".") > 2)


def software(machine: Machine, packages: dict[str, Package]) -> Iterator[Evidence]:
    """Yield the versions of ATB, of torch, torch_npu and libraries, and of Python, the system and the architecture."""
    named = machine.environ.get("ATB_HOME_PATH", "")
    above = [f"{named.rstrip('/')}/{up}/version.info" for up in ("..", "../..") if named]  # latest/atb/cxx_abi_1
    for path in (*above, *ATB):
        text = machine.tree.read(path).content
        found = re.search(r"^[ \t]*Ascend-cann-atb\s+Version\s*:\s*(\S+)", text, re.MULTILINE)
        yield from _known(NNAL, found[1] if found else "", path)
    for component, name, module in ((TORCH, "torch", "torch"), (TORCH_NPU, "torch-npu", "torch_npu")):
        if package := packages.get(name):
            yield from _known(component, package.version, package.path)
            path = f"{package.folder}/{module}/version.py"
            text = machine.tree.read(path).content
            found = re.search(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"\n]+)['\"]", text, re.MULTILINE)
            yield from _known(component, found[1] if found else "", path)
            commit = re.search(r"^git_version\s*(?::[^=\n]*)?=\s*['\"]([0-9a-f]{7,40})['\"]", text, re.MULTILINE)
            if commit and component == TORCH_NPU:
                yield Evidence(COMMIT, commit[1], path)
    for name in LIBRARIES:
        if name in packages:
            yield from _known(name, packages[name].version, packages[name].path)
    if machine.python:
        yield Evidence(PYTHON, machine.python, "this interpreter" if machine.is_this else machine.packages[0])
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        name = field(machine.tree.read(path).content, "PRETTY_NAME")[:80]
        if name.isprintable() and name:
            yield Evidence(SYSTEM, name, path)
            break
    if machine.arch:
        yield Evidence(ARCH, machine.arch, "the kernel" if machine.is_this else "the name of its dynamic loader")


def _known(component: str, value: str, source: str) -> Iterator[Evidence]:
    """Yield the statement if its value is a version; other values are reported elsewhere."""
    if is_version(value.partition("+")[0]) and re.fullmatch(r"[\w.+-]{1,80}", value, re.ASCII):
        yield Evidence(component, value, source)
