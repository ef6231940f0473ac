"""Rules on versions: whether CANN, torch, torch_npu and Python belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import TBE_NEEDS, Survey
from pytest_ascend.environment.compatibility import INCOMPATIBLE, PAIRED, Statement
from pytest_ascend.environment.evidence import CHIP, COMMIT, LIBRARIES, NNAL, PYTHON, RUNTIME, TOOLKIT, TORCH, TORCH_NPU
from pytest_ascend.environment.versions import Version, is_version, matches, satisfies


@rule("version.disagreement")
def disagreement(survey: Survey) -> Iterator[Observation]:
    for component in survey.components.values():
        if component.disagreeing and component.name != CHIP:
            evidence = tuple(f"{each.source}: {each.value}" for each in component.evidence if not each.internal)
            yield Observation(f"sources disagree on the version of {component.name}", evidence[:6])


@rule("torch.absent")
def no_torch(survey: Survey) -> Iterator[Observation]:
    if survey.concerns_ascend and not survey.version(TORCH):
        yield Observation("torch is not installed in this Python", ("no torch in the folders of Python's packages",))


@rule("torch-npu.absent")
def no_torch_npu(survey: Survey) -> Iterator[Observation]:
    if survey.concerns_ascend and survey.version(TORCH) and not survey.version(TORCH_NPU):
        pairs = survey.compatibility.paired(torch=_base(survey.version(TORCH)), cann=survey.cann)
        remedy = f"pip install torch-npu=={pairs[0]['torch_npu']}" if pairs else ""
        yield Observation("torch_npu is not installed in this Python", (survey.source(TORCH),), remedy)


@rule("combination.torch")
def other_torch(survey: Survey) -> Iterator[Observation]:
    torch, npu = survey.version(TORCH), survey.version(TORCH_NPU)
    needed = _needed_torch(survey)
    if torch and npu and needed and _base(torch) != needed:
        evidence = (survey.source(TORCH), survey.source(TORCH_NPU), f"torch_npu {npu} was built for torch {needed}")
        yield Observation(f"torch_npu {npu} is not for torch {torch}", evidence, f"pip install torch=={needed}")


@rule("torch.cuda")
def torch_with_cuda(survey: Survey) -> Iterator[Observation]:
    """A torch with an accelerator of its own. Source: _check_device_conflict in torch_npu/__init__.py."""
    package = survey.packages.get("torch")
    if not package or not survey.version(TORCH_NPU) or not survey.concerns_ascend:
        return
    path = f"{package.folder}/torch/version.py"
    text = survey.machine.tree.read(path).content
    built = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    if built:
        version = _base(survey.version(TORCH))
        remedy = f"pip install torch=={version}+cpu from PyTorch's index of CPU builds"
        yield Observation(f"torch {version} was built for CUDA {built[1]}", (f"{path}: cuda = '{built[1]}'",), remedy)


@rule("torch.emulated-extra")
def of_the_extra(survey: Survey) -> Iterator[Observation]:
    """The torch_npu of the extra "emulated" in place of the one that belongs to this machine's CANN."""
    mine, npu, cann = survey.packages.get("pytest-ascend"), _base(survey.version(TORCH_NPU)), survey.cann
    needs = mine.requires if mine else ()
    pins = (re.match(r"torch-npu\s*\(?==\s*([\w.]+).*extra == .emulated", each) for each in needs)
    fits = any(each.says == PAIRED and speaks_of(each, cann) for each in _statements(survey))
    if cann and not fits and npu in (pin[1] for pin in pins if pin):
        yield Observation(
            f"torch_npu {npu} is the one that pytest-ascend[emulated] installs, and not one of CANN {cann}",
            (survey.source(TORCH_NPU), mine.path if mine else ""),
            "install the torch and torch_npu of this CANN again, and pytest-ascend without [emulated]",
        )


@rule("combination.unlisted")
def unlisted(survey: Survey) -> Iterator[Observation]:
    npu = _base(survey.version(TORCH_NPU))
    if npu and survey.concerns_ascend and not survey.compatibility.knows(npu):
        yield Observation(
            f"there is no compatibility data on torch_npu {npu}", (survey.source(TORCH_NPU), _as_of(survey))
        )


@rule("combination.ambiguous")
def ambiguous(survey: Survey) -> Iterator[Observation]:
    npu = _base(survey.version(TORCH_NPU))
    paired = {each["line"] for each in survey.compatibility.paired() if each["torch_npu"] == npu}
    lines = [line for line in survey.compatibility.lines(npu) if re.fullmatch(r"[\d.]+|[\d.]+rc\d+", line)]
    if npu and paired and lines and not paired & set(lines):
        disagreement = f"the table has it in line {', '.join(sorted(paired))}, the tags in {', '.join(sorted(lines))}"
        commit = survey.source(COMMIT) or "its commit is not known"
        yield Observation(f"the number {npu} was given to two different builds of torch_npu", (disagreement, commit))


@rule("combination.incompatible")
def incompatible(survey: Survey) -> Iterator[Observation]:
    npu, cann = _base(survey.version(TORCH_NPU)), survey.cann
    statements = _statements(survey)
    fitting = [each for each in statements if each.says != INCOMPATIBLE and speaks_of(each, cann)]
    if statements and cann and not fitting:
        evidence = (
            survey.source(TORCH_NPU),
            survey.source(TOOLKIT if survey.version(TOOLKIT) else RUNTIME),
            *(str(each) for each in statements[:4]),
        )
        yield Observation(f"torch_npu {npu} does not belong to CANN {cann}", evidence, nearest(survey))


@rule("combination.disputed")
def disputed(survey: Survey) -> Iterator[Observation]:
    cann = survey.cann
    here = [each for each in _statements(survey) if speaks_of(each, cann)]
    if {each.says == INCOMPATIBLE for each in here} == {True, False} and not any(each.says == PAIRED for each in here):
        what = f"sources disagree on torch_npu {_base(survey.version(TORCH_NPU))} with CANN {cann}"
        yield Observation(what, tuple(str(each) for each in here[:6]), nearest(survey))


@rule("combination.unpaired")
def unpaired(survey: Survey) -> Iterator[Observation]:
    cann = survey.cann
    here = [each for each in _statements(survey) if speaks_of(each, cann)]
    says = {each.says for each in here}
    if here and PAIRED not in says and INCOMPATIBLE not in says:
        what = f"torch_npu {_base(survey.version(TORCH_NPU))} with CANN {cann} is not the recommended pair"
        yield Observation(what, tuple(str(each) for each in here[:4]), nearest(survey))


@rule("combination.undocumented")
def undocumented(survey: Survey) -> Iterator[Observation]:
    npu = _base(survey.version(TORCH_NPU))
    if npu and survey.concerns_ascend and survey.compatibility.knows(npu) and not survey.compatibility.statements(npu):
        what = f"no source says which CANN torch_npu {npu} belongs to"
        yield Observation(what, (survey.source(TORCH_NPU), _as_of(survey)), nearest(survey))


@rule("combination.python")
def wrong_python(survey: Survey) -> Iterator[Observation]:
    torch = _needed_torch(survey) or _base(survey.version(TORCH))
    known, source = survey.compatibility.python(torch)
    minor = ".".join(survey.version(PYTHON).split(".")[:2])
    if survey.version(TORCH_NPU) and survey.concerns_ascend and minor and known and minor not in known:
        evidence = (survey.source(PYTHON), f"for torch {torch}: {', '.join(known)} ({source})")
        yield Observation(f"Python {minor} is not supported by torch_npu for torch {torch}", evidence)


@rule("combination.libraries")
def libraries(survey: Survey) -> Iterator[Observation]:
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
            mine = f"{library} {have[library]}"
            wanted = f"{mine}: {', '.join(row['needs'])} ({survey.compatibility.where(row['source'])})"
            yield Observation(
                f"{mine} was not released for what is beside it: it needs {', '.join(wrong)}",
                (survey.source(library), wanted, *(f"{name} {have[name]}" for name in names)),
            )


def _is_one(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or not known to be outside of ">=8.3"."""
    if wanted[:1] in "<>=":
        return satisfies(version, wanted) is not False
    return version == wanted or matches(version, wanted)


def nearest(survey: Survey) -> str:
    """Name the official combinations in which the fewest of torch, torch_npu and CANN change, nearest first."""
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


def _statements(survey: Survey) -> tuple[Statement, ...]:
    # torch_npu is installed on laptops too, for the emulated device: there versions do not matter.
    npu = _base(survey.version(TORCH_NPU))
    return survey.compatibility.statements(npu) if npu and survey.concerns_ascend else ()


def speaks_of(statement: Statement, cann: str) -> bool:
    """Whether a statement is about this CANN, or about the release that it is a correction of (8.5.1 of 8.5.0)."""
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


def _as_of(survey: Survey) -> str:
    return f"compatibility data as of {survey.compatibility.as_of}"


@rule("python.compiler-needs")
def compiler_needs(survey: Survey) -> Iterator[Observation]:
    missing = [name for name in TBE_NEEDS if name not in survey.packages]
    if survey.home and missing and survey.machine.packages:
        what = f"CANN's compiler of operators lacks {', '.join(missing)}"
        yield Observation(what, ("not in Python's packages",), f"pip install {' '.join(missing)}")


@rule("python.numpy")
def new_numpy(survey: Survey) -> Iterator[Observation]:
    numpy, cann = survey.packages.get("numpy"), survey.cann
    if numpy and numpy.version[:2] == "2." and is_version(cann) and Version(cann) < Version("8.2.RC1"):
        yield Observation(f"numpy {numpy.version} is newer than CANN {cann}", (numpy.path,), "pip install 'numpy<2'")
