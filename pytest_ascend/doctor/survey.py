"""The facts about one machine that the rules use, each determined once."""

from __future__ import annotations

import re
from functools import cached_property

from pytest_ascend.environment.chips import family
from pytest_ascend.environment.compatibility import Compatibility
from pytest_ascend.environment.evidence import CHIP, LIBRARIES, RUNTIME, TOOLKIT, field
from pytest_ascend.environment.identity import of_machine
from pytest_ascend.environment.machine import Machine, installed
from pytest_ascend.environment.npu_smi import parse
from pytest_ascend.environment.signs import signs
from pytest_ascend.environment.stack import CannHome, driver_root, gather, homes

#: What CANN's own compiler of operators (TBE) imports, beside numpy.
TBE_NEEDS = ("numpy", "decorator", "attrs", "psutil", "scipy")
PACKAGES = frozenset({"torch", "torch-npu", "pytest-ascend", *TBE_NEEDS, *LIBRARIES})

CONTROL_FILES = ("davinci_manager", "devmm_svm", "hisi_hdc")


class Survey:
    """One machine, and the compatibility data for its stack. npu-smi is awaited only after files were read."""

    def __init__(self, machine: Machine, compatibility: Compatibility) -> None:
        self.machine, self.compatibility = machine, compatibility
        #: Environment variables of the machine.
        self.environ = environ = machine.environ
        tree = machine.tree
        here = () if machine.is_this else ("PATH", "HOME", "CONDA_PREFIX")
        #: Every sign of Ascend, except a torch_npu in Python, which may be there for the emulated device.
        self.signs = signs({name: value for name, value in environ.items() if name not in here}, tree.root)
        #: Whether these are the files of a container.
        named = any(map(tree.exists, ("/.dockerenv", "/run/.containerenv")))
        self.is_container = named or bool(environ.get("KUBERNETES_SERVICE_HOST"))
        #: Every CANN, the one in use first.
        self.homes = homes(machine)
        self.home = next(iter(self.homes), None)
        #: Whether there is anything to diagnose.
        self.concerns_ascend = bool(self.signs or self.homes)
        #: The folders of LD_LIBRARY_PATH.
        folders = environ.get("LD_LIBRARY_PATH", "").split(":")[:512]
        self.library_path = tuple(each for each in folders if each.startswith("/"))
        #: The driver's folder, existing or not; and whether its files are here: its libraries or its version.
        self.driver_folder = driver = f"{driver_root(machine)}/driver"
        self.has_driver = tree.is_folder(f"{driver}/lib64") or tree.exists(f"{driver}/version.info")
        names = [name for name in tree.names("/dev") if re.fullmatch(r"davinci\d{1,3}", name)]
        #: The device files of NPUs.
        self.devices = tuple(f"/dev/{name}" for name in sorted(names, key=lambda name: int(name[7:])))
        #: The relevant Python packages, by name.
        self.packages = installed(machine, PACKAGES)
        #: What npu-smi printed, and its parsed output.
        self.reply = machine.npu_smi()
        self.npu_smi = parse(self.reply.text)
        #: Every device that torch would see, in every numbering.
        self.identities = of_machine(machine)
        #: Every component with its evidence.
        self.components = gather(machine, self.home, self.packages, self.npu_smi)
        #: CANN's version, which is that of the toolkit or else of the runtime; and the chips' family, None if unknown.
        self.cann = self.version(TOOLKIT) or self.version(RUNTIME)
        self.family = family(self.version(CHIP))
        #: Whether the chips are 950s, whose driver manages shared memory through another file.
        self.is_950 = self.family is not None and self.family.name == "950"
        #: The files below /dev through which the devices of this machine are managed.
        self.control_files = tuple(name for name in CONTROL_FILES if not (self.is_950 and name == "devmm_svm"))
        #: The packages of the CANN in use, each with the file of its version and requirements.
        self.cann_packages: dict[str, str] = {}
        if home := self.home.path if self.home else "":
            places = [(name, f"{home}/share/info/{name}/version.info") for name in tree.names(f"{home}/share/info")]
            places += [(name, f"{home}/{name}/version.info") for name in tree.names(home)]
            self.cann_packages = {name: path for name, path in reversed(places) if tree.exists(path)}

    def version(self, name: str) -> str:
        """Return the version of a component, "" if unknown."""
        return self.components[name].version

    def source(self, name: str) -> str:
        """Return a component's version, and where it was found."""
        return next((f"{each.source}: {name} {each.value}" for each in self.components[name].evidence), "")

    def homes_of(self, variable: str) -> CannHome | None:
        """Return the CANN that a variable names, None if it names none."""
        target = self.machine.tree.target(self.environ.get(variable, "").rstrip("/"))
        return next((home for home in self.homes if home.target == target), None)

    def owner(self, folder: str) -> CannHome | None:
        """Return the CANN that a folder belongs to."""
        paths = (f"{folder}/", f"{self.machine.tree.target(folder)}/")
        owned = (home for home in self.homes for path in paths if path.startswith((f"{home.path}/", f"{home.target}/")))
        return next(owned, None)

    def cann_package_version(self, name: str) -> str:
        """Return the public version of a package of CANN, "" if it is not installed or has an internal version."""
        spellings = {name, name.replace("-", "_"), name.replace("_", "-")}
        path = next((path for each, path in self.cann_packages.items() if each in spellings), "")
        text = self.machine.tree.read(path).content if path else ""
        number = field(text, "Version")
        return field(text, "version_dir") or (number if number.count(".") <= 2 else "")

    @cached_property
    def inner_version(self) -> tuple[str, str]:
        """Return the number by which drivers know a CANN (V100R001C23...), and its file; the newest betas have none."""
        for arch in ("aarch64", "x86_64") if self.home else ():
            for kind in ("toolkit", "nnae", "nnrt"):
                path = f"{self.home.path if self.home else ''}/{arch}-linux/ascend_{kind}_install.info"
                inner = field(self.machine.tree.read(path).content, "innerversion")
                if re.match(r"V100R001C\d\d", inner, re.ASCII):
                    return inner[:40], path
        return "", ""
