"""Rules on CANN: which one is used, whether its parts belong together, and whether the environment fits it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import COMPILER, HCCL, KERNELS, OPP, OPS, RUNTIME, TOOLKIT
from pytest_ascend.environment.stack import VARIABLES, same
from pytest_ascend.environment.versions import satisfies

_REQUIRED = re.compile(r"^required_package_([\w.-]+?)_version\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE)


@rule("cann.absent")
def absent(survey: Survey) -> Iterator[Observation]:
    if (survey.devices or survey.has_driver or survey.npu_smi.chips) and not survey.homes:
        yield Observation(
            "there is an NPU or its driver, but no CANN", ("no CANN in /usr/local/Ascend, nor in ~/Ascend",)
        )


@rule("cann.home-gone")
def home_gone(survey: Survey) -> Iterator[Observation]:
    for name in VARIABLES:
        path = survey.environ.get(name)
        if path and survey.homes_of(name) is None:
            yield Observation(f"{name} does not name a CANN", (f"{name}={path[:200]}",))


@rule("cann.not-sourced")
def not_sourced(survey: Survey) -> Iterator[Observation]:
    missing = [name for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH") if not survey.environ.get(name)]
    if survey.home and missing:
        script = f"{survey.home.path.removesuffix('/latest')}/set_env.sh"
        evidence = (f"CANN: {survey.home.path}", *(f"{name} is not set" for name in missing))
        yield Observation("CANN is installed, but its environment is not set up", evidence, f"source {script}")


@rule("cann.other-operators")
def other_operators(survey: Survey) -> Iterator[Observation]:
    opp, home = survey.environ.get("ASCEND_OPP_PATH", ""), survey.home
    if opp and home and home.source in VARIABLES:
        target = survey.machine.tree.target(opp)
        # 8.3 has links from ``latest`` into its version's folder.
        if not f"{target}/".startswith((f"{home.target}/", f"{home.path}/")) and not (
            target.rpartition("/")[0] == home.target.rpartition("/")[0] and home.target.rpartition("/")[2] == "latest"
        ):
            evidence = (f"ASCEND_OPP_PATH={opp[:200]}", f"{home.source}={home.path}")
            yield Observation("ASCEND_OPP_PATH is not inside of the CANN in use", evidence)


@rule("cann.library-path")
def library_path(survey: Survey) -> Iterator[Observation]:
    if not survey.home or survey.home.source not in VARIABLES:
        return
    owners = [(entry, home) for entry in survey.library_path if (home := survey.owner(entry))]
    if owners and owners[0][1] != survey.home:
        entry, other = owners[0]
        evidence = (f"LD_LIBRARY_PATH has {entry} first, of {other.target}", f"{survey.home.source}={survey.home.path}")
        yield Observation("libraries of another CANN come first", evidence)
    elif not owners:
        evidence = (f"{survey.home.source}={survey.home.path}", "no folder of it in LD_LIBRARY_PATH")
        yield Observation("LD_LIBRARY_PATH has no folder of the CANN in use", evidence)


@rule("cann.two-in-library-path")
def two_cann(survey: Survey) -> Iterator[Observation]:
    """Folders of two CANNs in LD_LIBRARY_PATH, the right one first."""
    found = list(dict.fromkeys(home.target for entry in survey.library_path if (home := survey.owner(entry))))
    if len(found) > 1 and survey.home and found[0] == survey.home.target:
        yield Observation(f"LD_LIBRARY_PATH has folders of {len(found)} CANNs", tuple(found[:4]))


@rule("cann.stubs")
def stubs(survey: Survey) -> Iterator[Observation]:
    """Stub libraries, meant for building without a driver, on a machine that has one."""
    found = [entry for entry in survey.library_path if "devlib" in entry.split("/")]
    if found and survey.has_driver:
        yield Observation(
            "stub libraries are in LD_LIBRARY_PATH, and there is a driver", (f"LD_LIBRARY_PATH has {found[0]}",)
        )


@rule("cann.several")
def several(survey: Survey) -> Iterator[Observation]:
    others = [home for home in survey.homes[1:] if home.target != survey.homes[0].target]
    if others:
        used = f"in use: {survey.homes[0].target} (by {survey.homes[0].source})"
        yield Observation(
            f"{len(others) + 1} CANNs are installed", (used, *(f"also: {home.target}" for home in others[:4]))
        )


@rule("cann.mixed")
def mixed(survey: Survey) -> Iterator[Observation]:
    base = next((name for name in (TOOLKIT, RUNTIME) if survey.version(name)), "")
    for name in (RUNTIME, COMPILER, HCCL, OPP, KERNELS, OPS) if base else ():
        mine, other = survey.version(base), survey.version(name)
        if other and not survey.components[name].evidence[0].internal and not same(mine, other):
            allowed = name in (OPS, OPP, KERNELS) and survey.compatibility.may_mix(mine, other)
            if not allowed:
                evidence = (survey.source(base), survey.source(name))
                yield Observation(f"{name} is of {other}, and {base} of {mine}", evidence)


@rule("cann.constraint")
def constraints(survey: Survey) -> Iterator[Observation]:
    """What a package of CANN requires of another, which is otherwise checked only on installation."""
    for package, path in survey.cann_packages.items():
        text = survey.machine.tree.read(path).content
        for other, constraint in _REQUIRED.findall(text)[:64]:
            version = survey.cann_package_version(other)
            if version and satisfies(version, constraint) is False:
                evidence = (f"{path}: required_package_{other}_version={constraint[:40]}", f"{other} is {version}")
                yield Observation(
                    f"CANN's package {package} needs {other} {constraint[:40]}, but {version} is installed", evidence
                )


@rule("cann.architecture")
def other_arch(survey: Survey) -> Iterator[Observation]:
    if not survey.home or not survey.machine.arch:
        return
    folders = {name.removesuffix("-linux") for name in survey.machine.tree.names(survey.home.path)}
    found = folders & {"aarch64", "x86_64"}
    if found and survey.machine.arch not in found:
        evidence = (f"{survey.home.path}/{found.pop()}-linux", f"this machine is {survey.machine.arch}")
        yield Observation("CANN was installed for another processor", evidence)


@rule("cann.kernels")
def no_kernels(survey: Survey) -> Iterator[Observation]:
    """No compiled operators for the chip, which is what torch_npu calls on A2 and later."""
    if not survey.home or not survey.family or not survey.machine.tree.is_folder(f"{survey.home.path}/opp/built-in"):
        return
    folder = f"{survey.home.path}/opp/built-in/op_impl/ai_core/tbe/kernel"
    there = survey.machine.tree.names(f"{folder}/{survey.family.kernels}")
    if len(there) < 20:  # with so few, a folder holds only the toolkit's, none of the operators package
        others = [name for name in survey.machine.tree.names(folder) if name.startswith("ascend")]
        evidence = (f"{folder}/{survey.family.kernels} has {len(there)} operators", f"there are: {_listed(others)}")
        yield Observation(f"CANN has no compiled operators for {survey.family.name}", evidence)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) or "none"
