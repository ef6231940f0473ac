"""The facts about one machine that the rules use, each determined once, on first use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_ascend.environment.chips import Family, family
from pytest_ascend.environment.compatibility import Compatibility
from pytest_ascend.environment.evidence import CHIP, LIBRARIES, RUNTIME, TOOLKIT, field
from pytest_ascend.environment.identity import Identity, identities
from pytest_ascend.environment.machine import Machine, Package, installed
from pytest_ascend.environment.npu_smi import NpuSmi, parse, parse_map
from pytest_ascend.environment.signs import Sign, signs
from pytest_ascend.environment.stack import CannHome, Component, driver_root, gather, homes
from pytest_ascend.system.programs import Reply

#: What CANN's own compiler of operators (TBE) imports, beside numpy.
TBE_NEEDS = ("numpy", "decorator", "attrs", "psutil", "scipy")
PACKAGES = frozenset({"torch", "torch-npu", "pytest-ascend", *TBE_NEEDS, *LIBRARIES})

CONTROL_FILES = ("davinci_manager", "devmm_svm", "hisi_hdc")


@dataclass(frozen=True, eq=False)
class Survey:
    """One machine, and the compatibility data for its stack."""

    machine: Machine
    compatibility: Compatibility

    @cached_property
    def signs(self) -> tuple[Sign, ...]:
        """Every trace of Ascend; a torch_npu in Python does not, as it is there for the emulated device."""
        here = () if self.machine.is_this else ("PATH", "HOME", "CONDA_PREFIX")
        environ = {name: value for name, value in self.environ.items() if name not in here}
        return signs(environ, self.machine.tree.root)

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of the machine."""
        return self.machine.environ

    @property
    def is_container(self) -> bool:
        """Whether these are the files of a container."""
        named = any(self.machine.tree.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))
        return named or bool(self.environ.get("KUBERNETES_SERVICE_HOST"))

    @cached_property
    def homes(self) -> tuple[CannHome, ...]:
        """Every CANN, the one in use first."""
        return homes(self.machine)

    @property
    def home(self) -> CannHome | None:
        """The CANN in use."""
        return next(iter(self.homes), None)

    @cached_property
    def packages(self) -> dict[str, Package]:
        """The Python packages that matter, by name."""
        return installed(self.machine, PACKAGES)

    @cached_property
    def reply(self) -> Reply:
        """What npu-smi printed."""
        return self.machine.npu_smi()

    @cached_property
    def npu_smi(self) -> NpuSmi:
        """The parsed output of npu-smi."""
        return parse(self.reply.text)

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Every device that torch would see, in every numbering."""
        numbers = [int(path.removeprefix("/dev/davinci")) for path in self.devices]
        return identities(self.environ, numbers, self.npu_smi, parse_map(self.machine.npu_smi_map().text))

    @cached_property
    def components(self) -> dict[str, Component]:
        """Every component with its evidence."""
        return gather(self.machine, self.home, self.packages, self.npu_smi)

    def version(self, name: str) -> str:
        """Return the version of a component, "" where unknown."""
        return self.components[name].version

    def source(self, name: str) -> str:
        """Return a component's version, and where it was found."""
        return next((f"{each.source}: {name} {each.value}" for each in self.components[name].evidence), "")

    @property
    def cann(self) -> str:
        """Return the version of CANN: that of the toolkit, or else of the runtime."""
        return self.version(TOOLKIT) or self.version(RUNTIME)

    @cached_property
    def family(self) -> Family | None:
        """The family of the chips, None if unknown."""
        return family(self.version(CHIP))

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The device files of NPUs."""
        names = [name for name in self.machine.tree.names("/dev") if re.fullmatch(r"davinci\d{1,3}", name)]
        return tuple(f"/dev/{name}" for name in sorted(names, key=lambda name: int(name[7:])))

    @property
    def control_files(self) -> tuple[str, ...]:
        """The files below /dev through which the devices of this machine are managed."""
        # The 950's driver manages shared memory through another file.
        is_950 = self.family is not None and self.family.name == "950"
        return tuple(name for name in CONTROL_FILES if not (is_950 and name == "devmm_svm"))

    @cached_property
    def driver_folder(self) -> str:
        """Where the driver is, or would be."""
        return f"{driver_root(self.machine)}/driver"

    @cached_property
    def has_driver(self) -> bool:
        """Whether the driver's files are here: its libraries or its version."""
        tree, folder = self.machine.tree, self.driver_folder
        return tree.is_folder(f"{folder}/lib64") or tree.exists(f"{folder}/version.info")

    @property
    def concerns_ascend(self) -> bool:
        """Whether there is anything to diagnose."""
        return bool(self.signs or self.homes)

    def homes_of(self, variable: str) -> CannHome | None:
        """Return the CANN that a variable names, None if it names none."""
        target = self.machine.tree.target(self.environ.get(variable, "").rstrip("/"))
        return next((home for home in self.homes if home.target == target), None)

    @cached_property
    def library_path(self) -> tuple[str, ...]:
        """The folders of LD_LIBRARY_PATH."""
        return tuple(each for each in self.environ.get("LD_LIBRARY_PATH", "").split(":")[:512] if each.startswith("/"))

    def owner(self, folder: str) -> CannHome | None:
        """Return the CANN that a folder belongs to."""
        paths = (f"{folder}/", f"{self.machine.tree.target(folder)}/")
        owned = (home for home in self.homes for path in paths if path.startswith((f"{home.path}/", f"{home.target}/")))
        return next(owned, None)

    @cached_property
    def cann_packages(self) -> dict[str, str]:
        """The packages of the CANN in use, each with the file of its version and requirements."""
        if not self.home:
            return {}
        tree, home = self.machine.tree, self.home.path
        places = [(name, f"{home}/share/info/{name}/version.info") for name in tree.names(f"{home}/share/info")]
        places += [(name, f"{home}/{name}/version.info") for name in tree.names(home)]
        return {name: path for name, path in reversed(places) if tree.exists(path)}

    def cann_package_version(self, name: str) -> str:
        """Return the public version of a package of CANN, "" if it is not installed or has an internal version."""
        spellings = {name, name.replace("-", "_"), name.replace("_", "-")}
        path = next((path for each, path in self.cann_packages.items() if each in spellings), "")
        text = self.machine.tree.read(path).content if path else ""
        number = field(text, "Version")
        return field(text, "version_dir") or (number if number.count(".") <= 2 else "")

    @cached_property
    def inner_version(self) -> tuple[str, str]:
        """The number by which drivers know a CANN (V100R001C23...), and its file; the newest betas have none."""
        for arch in ("aarch64", "x86_64") if self.home else ():
            for kind in ("toolkit", "nnae", "nnrt"):
                path = f"{self.home.path if self.home else ''}/{arch}-linux/ascend_{kind}_install.info"
                inner = field(self.machine.tree.read(path).content, "innerversion")
                if re.match(r"V100R001C\d\d", inner, re.ASCII):
                    return inner[:40], path
        return "", ""

    @cached_property
    def version_files(self) -> tuple[str, ...]:
        """The files that say versions, if they are there; each of them was read."""
        root = self.driver_folder.removesuffix("/driver")
        paths = [f"{root}/driver/version.info", f"{root}/firmware/version.info"]
        if self.home:
            paths.append(f"{self.home.path}/version.cfg")
            for arch in ("aarch64", "x86_64"):
                folder = f"{self.home.path}/{arch}-linux"
                names = self.machine.tree.names(folder)
                paths += [f"{folder}/{name}" for name in names if re.fullmatch(r"ascend_\w+_install\.info", name)]
        return tuple(path for path in paths if self.machine.tree.read(path).exists)
