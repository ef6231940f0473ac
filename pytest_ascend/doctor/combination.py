"""Checks of versions: whether CANN, torch, torch_npu and Python are compatible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_ascend.doctor.findings import Observation, check
from pytest_ascend.doctor.survey import TBE_NEEDS, Survey
from pytest_ascend.environment.compatibility import INCOMPATIBLE, PAIRED, Statement
from pytest_ascend.environment.evidence import CHIP, COMMIT, LIBRARIES, NNAL, PYTHON, RUNTIME, TOOLKIT, TORCH, TORCH_NPU
from pytest_ascend.environment.versions import Version, is_version, matches, satisfies


@check
def disagreements(survey: Survey) -> Iterator[Observation]:
    """Find components whose versions differ between places."""
    for component in survey.components.values():
        if component.disagreeing and component.name != CHIP:
            evidence = tuple(f"{each.source}: {each.value}" for each in component.evidence if not each.internal)
            what = f"sources disagree on the version of {component.name}"
            yield Observation("version.disagreement", what, evidence[:6])


@check
def packages(survey: Survey) -> Iterator[Observation]:
    """Check Python's torch, torch_npu and the packages that CANN's compiler needs."""
    torch, npu = survey.version(TORCH), survey.version(TORCH_NPU)
    if survey.concerns_ascend and not torch:
        evidence: tuple[str, ...] = ("no torch in the folders of Python's packages",)
        yield Observation("torch.absent", "torch is not installed in this Python", evidence)
    elif survey.concerns_ascend and not npu:
        pairs = survey.compatibility.paired(torch=_base(torch), cann=survey.cann)
        remedy = f"pip install torch-npu=={pairs[0]['torch_npu']}" if pairs else ""
        what = "torch_npu is not installed in this Python"
        yield Observation("torch-npu.absent", what, (survey.source(TORCH),), remedy)
    needed = _needed_torch(survey)
    if torch and npu and needed and _base(torch) != needed:
        evidence = (survey.source(TORCH), survey.source(TORCH_NPU), f"torch_npu {npu} was built for torch {needed}")
        what, remedy = f"torch_npu {npu} is not for torch {torch}", f"pip install torch=={needed}"
        yield Observation("combination.torch", what, evidence, remedy)
    # A torch with an accelerator of its own. Source: _check_device_conflict in torch_npu/__init__.py.
    if (package := survey.packages.get("torch")) and npu and survey.concerns_ascend:
        path = f"{package.folder}/torch/version.py"
        text = survey.machine.tree.read(path).content
        if built := re.search(r"^cuda\s*(?::[^=\n]*)?=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE):
            remedy = f"pip install torch=={_base(torch)}+cpu from PyTorch's index of CPU builds"
            what = f"torch {_base(torch)} was built for CUDA {built[1]}"
            yield Observation("torch.cuda", what, (f"{path}: cuda = '{built[1]}'",), remedy)
    lacking = [name for name in TBE_NEEDS if name not in survey.packages]
    if survey.home and lacking and survey.machine.packages:
        what, remedy = f"CANN's compiler of operators lacks {', '.join(lacking)}", f"pip install {' '.join(lacking)}"
        yield Observation("python.compiler-needs", what, ("not in Python's packages",), remedy)
    numpy, cann = survey.packages.get("numpy"), survey.cann
    if numpy and numpy.version[:2] == "2." and is_version(cann) and Version(cann) < Version("8.2.RC1"):
        what = f"numpy {numpy.version} is newer than CANN {cann}"
        yield Observation("python.numpy", what, (numpy.path,), "pip install 'numpy<2'")


@check
def number_given_twice(survey: Survey) -> Iterator[Observation]:
    """Find a torch_npu version that two builds share."""
    npu, data = _base(survey.version(TORCH_NPU)), survey.compatibility
    paired = {each["line"] for each in data.paired() if each["torch_npu"] == npu}
    lines = [line for line in data.lines(npu) if re.fullmatch(r"[\d.]+|[\d.]+rc\d+", line)]
    if npu and paired and lines and not paired & set(lines):
        disagreement = f"the table has it in line {', '.join(sorted(paired))}, the tags in {', '.join(sorted(lines))}"
        evidence = (disagreement, survey.source(COMMIT) or "its commit is not known")
        what = f"the number {npu} was given to two different builds of torch_npu"
        yield Observation("combination.ambiguous", what, evidence)


@check
def stated(survey: Survey) -> Iterator[Observation]:
    """Report what sources state about this torch_npu with this CANN."""
    npu, cann, data = _base(survey.version(TORCH_NPU)), survey.cann, survey.compatibility
    # torch_npu is also installed on laptops, for the emulated device: versions do not matter there.
    statements = data.statements(npu) if npu and survey.concerns_ascend else ()
    here = [each for each in statements if speaks_of(each, cann)]
    says = {each.says for each in here}
    # The extra "emulated" installed its own torch_npu instead of the one for this machine's CANN.
    mine = survey.packages.get("pytest-ascend")
    needs = mine.requires if mine else ()
    pins = (re.match(r"torch-npu\s*\(?==\s*([\w.]+).*extra == .emulated", each) for each in needs)
    if mine and cann and PAIRED not in says and npu in (pin[1] for pin in pins if pin):
        what = f"torch_npu {npu} is the one that pytest-ascend[emulated] installs, and not one of CANN {cann}"
        remedy = "install the torch and torch_npu of this CANN again, and pytest-ascend without [emulated]"
        yield Observation("torch.emulated-extra", what, (survey.source(TORCH_NPU), mine.path), remedy)
    as_of = f"compatibility data as of {data.as_of}"
    if npu and survey.concerns_ascend and not data.knows(npu):
        what = f"there is no compatibility data on torch_npu {npu}"
        yield Observation("combination.unlisted", what, (survey.source(TORCH_NPU), as_of))
    elif npu and survey.concerns_ascend and not statements:
        what = f"no source says which CANN torch_npu {npu} belongs to"
        yield Observation("combination.undocumented", what, (survey.source(TORCH_NPU), as_of), nearest(survey))
    if statements and cann and not says - {INCOMPATIBLE}:
        used = survey.source(TOOLKIT if survey.version(TOOLKIT) else RUNTIME)
        evidence: tuple[str, ...] = (survey.source(TORCH_NPU), used, *(str(each) for each in statements[:4]))
        what = f"torch_npu {npu} does not belong to CANN {cann}"
        yield Observation("combination.incompatible", what, evidence, nearest(survey))
    elif says and PAIRED not in says:
        is_disputed = INCOMPATIBLE in says
        pair = f"torch_npu {npu} with CANN {cann}"
        what = f"sources disagree on {pair}" if is_disputed else f"{pair} is not the recommended pair"
        evidence = tuple(str(each) for each in here[: 6 if is_disputed else 4])
        yield Observation(f"combination.{'disputed' if is_disputed else 'unpaired'}", what, evidence, nearest(survey))


@check
def released(survey: Survey) -> Iterator[Observation]:
    """Find Pythons and libraries that were not released for the versions installed with them."""
    torch = _needed_torch(survey) or _base(survey.version(TORCH))
    known, source = survey.compatibility.python(torch)
    minor = ".".join(survey.version(PYTHON).split(".")[:2])
    if survey.version(TORCH_NPU) and survey.concerns_ascend and minor and known and minor not in known:
        evidence: tuple[str, ...] = (survey.source(PYTHON), f"for torch {torch}: {', '.join(known)} ({source})")
        what = f"Python {minor} is not supported by torch_npu for torch {torch}"
        yield Observation("combination.python", what, evidence)
    have = {"CANN": survey.cann, TORCH_NPU: _base(survey.version(TORCH_NPU))}
    have |= {name: _base(survey.version(name)) for name in (NNAL, *LIBRARIES)}

    def lacking(row: Mapping[str, Any]) -> list[str]:
        pairs = ((need, *need.rpartition(" ")[::2]) for need in row["needs"])
        return [need for need, name, wanted in pairs if have.get(name) and not _is_one(have[name], wanted)]

    for library in (NNAL, *LIBRARIES) if survey.concerns_ascend else ():
        rows = survey.compatibility.needs(library, have[library]) if have[library] else ()
        row = min(rows, key=lambda each: len(lacking(each)), default=None)
        if row and (wrong := lacking(row)):
            names = [each.rpartition(" ")[0] for each in wrong]
            its = f"{library} {have[library]}"
            wanted = f"{its}: {', '.join(row['needs'])} ({survey.compatibility.where(row['source'])})"
            what = f"{its} was not released for what is beside it: it needs {', '.join(wrong)}"
            evidence = (survey.source(library), wanted, *(f"{name} {have[name]}" for name in names))
            yield Observation("combination.libraries", what, evidence)


def _is_one(version: str, wanted: str) -> bool:
    """Return whether a version is the wanted one, or not known to be outside of ">=8.3"."""
    if wanted[:1] in "<>=":
        return satisfies(version, wanted) is not False
    return version == wanted or matches(version, wanted)


def nearest(survey: Survey) -> str:
    """Return the official combinations that change the fewest of torch, torch_npu and CANN, nearest first."""
    here = {name: _base(survey.version(of)) for name, of in (("torch", TORCH), ("torch_npu", TORCH_NPU))}
    releases, cann = survey.compatibility.cann_releases, survey.cann

    def changes(row: Mapping[str, Any]) -> int:
        others = sum(1 for name, version in here.items() if version and row[name] != version)
        return others + bool(cann and not any(matches(cann, each) for each in row["cann"]))

    def releases_between(row: Mapping[str, Any]) -> int:
        if not is_version(cann):
            return 0
        ends = (sorted((Version(cann), Version(each))) for each in row["cann"] if is_version(each))
        return min((sum(first < each <= last for each in releases) for first, last in ends), default=len(releases))

    known = sum(map(bool, (*here.values(), cann)))
    rows = [row for row in survey.compatibility.paired() if changes(row) < known]
    fewest = min(map(changes, rows), default=0)
    rows = sorted((row for row in rows if changes(row) == fewest), key=releases_between)
    pairs = dict.fromkeys(
        f"torch {r['torch']} + torch_npu {r['torch_npu']} + CANN {', '.join(r['cann'])}" for r in rows
    )
    if not pairs:
        return "choose a row of the table in Ascend/pytorch's COMPATIBILITY.md, and install all of it"
    return f"the nearest official combinations: {'; '.join([*pairs][:4])}"


def speaks_of(statement: Statement, cann: str) -> bool:
    """Return whether a statement is about this CANN, or about the release that it corrects (8.5.1 of 8.5.0)."""
    line = ".".join(cann.split(".")[:2])
    is_correction = re.fullmatch(r"\d+\.\d+\.[1-9]\d*", cann, re.ASCII) is not None
    return any(
        matches(cann, each) or (is_correction and statement.says != INCOMPATIBLE and each == f"{line}.0")
        for each in statement.cann
    )


def _needed_torch(survey: Survey) -> str:
    """Return the torch that torch_npu was built for: by its own requirements, else by its number."""
    package = survey.packages.get("torch-npu")
    pins = (re.match(r"torch\s*\(?==\s*(\d+(?:\.\d+)*)", each) for each in (package.requires if package else ()))
    pinned = next((pin[1] for pin in pins if pin), "")
    number = re.match(r"\d+\.\d+\.\d+", survey.version(TORCH_NPU))
    return pinned or (number[0] if number else "")


def _base(version: str) -> str:
    return version.partition("+")[0]
