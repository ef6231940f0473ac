"""Checks of CANN: which one is used, whether its parts belong together, and whether the environment fits it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_ascend.doctor.findings import Observation, check
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import COMPILER, HCCL, KERNELS, OPP, OPS, RUNTIME, TOOLKIT
from pytest_ascend.environment.stack import VARIABLES, same
from pytest_ascend.environment.versions import satisfies

_REQUIRED = re.compile(r"^required_package_([\w.-]+?)_version\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE)


@check
def variables(survey: Survey) -> Iterator[Observation]:
    """Check whether there is a CANN, and whether the variables name it."""
    if (survey.devices or survey.has_driver or survey.npu_smi.chips) and not survey.homes:
        evidence: tuple[str, ...] = ("no CANN in /usr/local/Ascend, nor in ~/Ascend",)
        yield Observation("cann.absent", "there is an NPU or its driver, but no CANN", evidence)
    for name in VARIABLES:
        path = survey.environ.get(name)
        if path and survey.homes_of(name) is None:
            yield Observation("cann.home-gone", f"{name} does not name a CANN", (f"{name}={path[:200]}",))
    if not (home := survey.home):
        return
    missing = [name for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH") if not survey.environ.get(name)]
    if missing:
        script = f"{home.path.removesuffix('/latest')}/set_env.sh"
        evidence = (f"CANN: {home.path}", *(f"{name} is not set" for name in missing))
        said = "CANN is installed, but its environment is not set up"
        yield Observation("cann.not-sourced", said, evidence, f"source {script}")
    opp = survey.environ.get("ASCEND_OPP_PATH", "")
    if opp and home.source in VARIABLES:
        target = survey.machine.tree.target(opp)
        # 8.3 has links from ``latest`` into its version's folder.
        if not f"{target}/".startswith((f"{home.target}/", f"{home.path}/")) and not (
            target.rpartition("/")[0] == home.target.rpartition("/")[0] and home.target.rpartition("/")[2] == "latest"
        ):
            evidence = (f"ASCEND_OPP_PATH={opp[:200]}", f"{home.source}={home.path}")
            yield Observation("cann.other-operators", "ASCEND_OPP_PATH is not inside of the CANN in use", evidence)


@check
def other_canns(survey: Survey) -> Iterator[Observation]:
    """Find other CANNs than the one in use, in LD_LIBRARY_PATH or on the disk, and stub libraries."""
    home, owners = survey.home, [(entry, its) for entry in survey.library_path if (its := survey.owner(entry))]
    if home and home.source in VARIABLES:
        used = f"{home.source}={home.path}"
        if not owners:
            evidence: tuple[str, ...] = (used, "no folder of it in LD_LIBRARY_PATH")
            yield Observation("cann.library-path", "LD_LIBRARY_PATH has no folder of the CANN in use", evidence)
        elif owners[0][1] != home:
            evidence = (f"LD_LIBRARY_PATH has {owners[0][0]} first, of {owners[0][1].target}", used)
            yield Observation("cann.library-path", "libraries of another CANN come first", evidence)
    found = list(dict.fromkeys(its.target for _, its in owners))
    if len(found) > 1 and home and found[0] == home.target:  # the first one is right
        said = f"LD_LIBRARY_PATH has folders of {len(found)} CANNs"
        yield Observation("cann.two-in-library-path", said, tuple(found[:4]))
    # Stub libraries are for building without a driver.
    stubs = [entry for entry in survey.library_path if "devlib" in entry.split("/")]
    if stubs and survey.has_driver:
        said = "stub libraries are in LD_LIBRARY_PATH, and there is a driver"
        yield Observation("cann.stubs", said, (f"LD_LIBRARY_PATH has {stubs[0]}",))
    others = [each for each in survey.homes[1:] if each.target != survey.homes[0].target]
    if others:
        used = f"in use: {survey.homes[0].target} (by {survey.homes[0].source})"
        evidence = (used, *(f"also: {each.target}" for each in others[:4]))
        yield Observation("cann.several", f"{len(others) + 1} CANNs are installed", evidence)


@check
def mixed_parts(survey: Survey) -> Iterator[Observation]:
    """Find parts of several releases; otherwise, requirements between packages are only checked on installation."""
    base = next((name for name in (TOOLKIT, RUNTIME) if survey.version(name)), "")
    for name in (RUNTIME, COMPILER, HCCL, OPP, KERNELS, OPS) if base else ():
        mine, other = survey.version(base), survey.version(name)
        is_other = other and not survey.components[name].evidence[0].internal and not same(mine, other)
        if is_other and not (name in (OPS, OPP, KERNELS) and survey.compatibility.may_mix(mine, other)):
            evidence = (survey.source(base), survey.source(name))
            yield Observation("cann.mixed", f"{name} is of {other}, and {base} of {mine}", evidence)
    for package, path in survey.cann_packages.items():
        for other, constraint in _REQUIRED.findall(survey.machine.tree.read(path).content)[:64]:
            version = survey.cann_package_version(other)
            if version and satisfies(version, constraint) is False:
                evidence = (f"{path}: required_package_{other}_version={constraint[:40]}", f"{other} is {version}")
                said = f"CANN's package {package} needs {other} {constraint[:40]}, but {version} is installed"
                yield Observation("cann.constraint", said, evidence)


@check
def for_this_machine(survey: Survey) -> Iterator[Observation]:
    """Find a CANN for another processor, or without the chip's compiled operators, which torch_npu calls from A2 on."""
    home, tree, arch, chip = survey.home, survey.machine.tree, survey.machine.arch, survey.family
    if not home:
        return
    found = {name.removesuffix("-linux") for name in tree.names(home.path)} & {"aarch64", "x86_64"}
    if found and arch and arch not in found:
        evidence = (f"{home.path}/{found.pop()}-linux", f"this machine is {arch}")
        yield Observation("cann.architecture", "CANN was installed for another processor", evidence)
    folder = f"{home.path}/opp/built-in/op_impl/ai_core/tbe/kernel"
    if chip and tree.is_folder(f"{home.path}/opp/built-in"):
        there = tree.names(f"{folder}/{chip.kernels}")
        if len(there) < 20:  # so few are the toolkit's own, without the operators package
            others = ", ".join([name for name in tree.names(folder) if name.startswith("ascend")][:6])
            evidence = (f"{folder}/{chip.kernels} has {len(there)} operators", f"there are: {others or 'none'}")
            yield Observation("cann.kernels", f"CANN has no compiled operators for {chip.name}", evidence)
