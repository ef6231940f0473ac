"""Rules on files that are there and cannot be used: damaged, foreign, or not what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.machine import BINARY, LOOP, NOT_A_FILE, TOO_LARGE
from pytest_ascend.system.files import open_regular

#: What is wrong with a file -> the rule that reports it. Others may not be read by this user, or by the disk.
_RULES = {BINARY: "file.damaged", TOO_LARGE: "file.damaged", NOT_A_FILE: "file.damaged", LOOP: "file.loop"}
_UNREADABLE = "file.unreadable"


def unusable(survey: Survey, name: str) -> Iterator[Observation]:
    """Yield the files that one of the rules reports, after all that matter were read."""
    _ = survey.inner_version, survey.version_files
    for path, problem in sorted(survey.machine.tree.problems.items()):
        if _RULES.get(problem, _UNREADABLE) == name:
            said = f"cannot be read: {problem}" if name == _UNREADABLE else f"is {problem}"
            yield Observation(f"{path} {said}", (path,))


for _rule in (*dict.fromkeys(_RULES.values()), _UNREADABLE):
    rule(_rule)(partial(unusable, name=_rule))


@rule("file.no-version")
def says_nothing(survey: Survey) -> Iterator[Observation]:
    for path in survey.version_files:
        if path not in survey.machine.tree.problems and survey.machine.tree.exists(path):
            speaks = any(each.source.startswith(path) for c in survey.components.values() for each in c.evidence)
            if not speaks:
                yield Observation(f"{path} has no version", (path,))


@rule("library.broken")
def broken_libraries(survey: Survey) -> Iterator[Observation]:
    for library in libraries(survey):
        if library.problem:
            yield Observation(f"{library.path} is not a loadable library: {library.problem}", (library.path,))


@rule("library.architecture")
def foreign_libraries(survey: Survey) -> Iterator[Observation]:
    for library in libraries(survey):
        if library.arch and survey.machine.arch and library.arch != survey.machine.arch:
            evidence = (f"{library.path}: {library.arch}", f"this machine: {survey.machine.arch}")
            yield Observation(f"{library.path} is for another processor", evidence)


@rule("library.needed")
def unmet_libraries(survey: Survey) -> Iterator[Observation]:
    # Without a driver its libraries are missing too, which need not be said once more.
    for library in libraries(survey) if survey.has_driver else ():
        if library.missing:
            evidence = (
                f"{library.path} needs {', '.join(library.missing[:6])}",
                (f"looked in {len(survey.library_path)} folders of LD_LIBRARY_PATH and beside it"),
            )
            name = library.path.rpartition("/")[2]
            yield Observation(f"{name} needs {library.missing[0]}, which is not found", evidence)


#: The libraries through which torch_npu reaches the NPU: those of CANN, and the driver's.
CANN_LIBRARIES = ("libascendcl.so", "libhccl.so", "libopapi.so", "libge_runner.so", "libruntime.so")
DRIVER_LIBRARIES = ("driver/libascend_hal.so", "common/libc_sec.so", "driver/libdcmi.so")

_ARCHITECTURES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}

#: Needed libraries that belong to CANN or the driver: the system's own are found elsewhere.
_OURS = re.compile(
    r"lib(ascend\w*|acl\w*|hccl\w*|runtime|ge_\w+|graph\w*|opapi|nnopbase|msprof\w*|c_sec|mmpa|slog|alog|error_manager"
    r"|profapi|platform|register|exe_graph|ascendalog|unified_dlog|metadef|drv\w*|dcmi\w*)\.so[.\d]*"
)
#: Ten times the largest library of CANN; only its header is read.
_LARGEST_BYTES = 8 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """One shared library. ``problem`` says why it cannot be loaded; ``missing`` are the libraries that it lacks."""

    path: str
    problem: str = ""
    arch: str = ""
    missing: tuple[str, ...] = ()


@lru_cache(maxsize=1)  # several rules ask, about one machine
def libraries(survey: Survey) -> tuple[Library, ...]:
    """Read the libraries of the CANN in use and of the driver, as far as they are there."""
    places = [f"{survey.home.path}/lib64/{name}" for name in CANN_LIBRARIES] if survey.home else []
    places += [f"{survey.driver_folder}/lib64/{name}" for name in DRIVER_LIBRARIES]
    # The names of libraries that a loader would find: in LD_LIBRARY_PATH, beside the library, in the system's folders.
    folders = [*survey.library_path, *(path.rpartition("/")[0] for path in places), "/usr/lib64", "/usr/lib", "/lib64"]
    folders += [f"/usr/lib/{survey.machine.arch}-linux-gnu", "/usr/local/lib"]
    found = frozenset(name for folder in dict.fromkeys(folders) for name in survey.machine.tree.names(folder))
    return tuple(_read(survey, path, found) for path in places if survey.machine.tree.exists(path))


def _read(survey: Survey, path: str, found: frozenset[str]) -> Library:
    try:
        arch, needed = _header(survey.machine.tree.real(path))
    except Exception as error:  # noqa: BLE001 (a damaged file makes pyelftools raise anything, assertions too)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Library(path=path, problem=said[:100] or type(error).__name__)
    missing = tuple(name for name in needed if _OURS.fullmatch(name) and name not in found)
    return Library(path=path, arch=arch, missing=missing)


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the architecture and the needed libraries. Raises pyelftools' errors for a file that is not one."""
    with open_regular(path, _LARGEST_BYTES) as file:
        elf = ELFFile(file)
        arch, needed = _ARCHITECTURES.get(str(elf["e_machine"]), str(elf["e_machine"])), []
        for segment in (each for each in elf.iter_segments() if isinstance(each, DynamicSegment)):
            for count, tag in enumerate(segment.iter_tags()):
                if count > 2000:  # libraries have some dozens
                    raise ValueError("its dynamic section has no end")
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.append(str(getattr(tag, "needed", "")))
        return arch, needed
