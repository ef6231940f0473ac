"""Rules on files that are there and cannot be used: damaged, foreign, or not what they are called."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.doctor.findings import ERROR, WARNING, Rule, Seen
from pytest_ascend.doctor.libraries import Library, libraries
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.tree import BINARY, LOOP, NOT_A_FILE, TOO_LARGE


def damaged(survey: Survey) -> Iterator[Seen]:
    """Files that are binary, far too large, or no files."""
    for path, problem in _problems(survey):
        if problem in (BINARY, TOO_LARGE, NOT_A_FILE):
            yield Seen(f"{path} is {problem}", (path,))


def loops(survey: Survey) -> Iterator[Seen]:
    """Links that lead to themselves."""
    for path, problem in _problems(survey):
        if problem == LOOP:
            yield Seen(f"{path} is {LOOP}", (path,))


def unreadable(survey: Survey) -> Iterator[Seen]:
    """Files that this user may not read, or the disk does not give."""
    for path, problem in _problems(survey):
        if problem not in (BINARY, TOO_LARGE, NOT_A_FILE, LOOP):
            yield Seen(f"{path} cannot be read: {problem}", (path,))


def says_nothing(survey: Survey) -> Iterator[Seen]:
    """Files that should say a version, and say none."""
    for path in survey.version_files:
        if path not in survey.machine.tree.problems and survey.machine.tree.exists(path):
            speaks = any(each.source.startswith(path) for c in survey.components.values() for each in c.evidence)
            if not speaks:
                yield Seen(f"{path} says no version", (path,))


def broken_libraries(survey: Survey) -> Iterator[Seen]:
    """Libraries that no loader would take."""
    for library in libraries(survey):
        if library.problem:
            yield Seen(f"{library.path} is no library that can be loaded: {library.problem}", (library.path,))


def foreign_libraries(survey: Survey) -> Iterator[Seen]:
    """Libraries for another processor."""
    for library in libraries(survey):
        if library.arch and survey.machine.arch and library.arch != survey.machine.arch:
            evidence = (f"{library.path}: {library.arch}", f"this machine: {survey.machine.arch}")
            yield Seen(f"{library.path} is for another processor", evidence)


def unmet_libraries(survey: Survey) -> Iterator[Seen]:
    """Libraries of CANN and the driver that are needed, and not in LD_LIBRARY_PATH."""
    # Without a driver its libraries are missing too, which need not be said once more.
    for library in libraries(survey) if survey.has_driver else ():
        if library.missing:
            evidence = (f"{library.path} needs {', '.join(library.missing[:6])}", _searched(survey))
            yield Seen(f"{_name(library)} needs {library.missing[0]}, which is not found", evidence)


def _searched(survey: Survey) -> str:
    return f"looked in {len(survey.library_path)} folders of LD_LIBRARY_PATH and beside it"


def _name(library: Library) -> str:
    return library.path.rpartition("/")[2]


def _problems(survey: Survey) -> list[tuple[str, str]]:
    """Return the problems with files that matter, after all of them were read."""
    _ = survey.components, survey.cann_packages, survey.inner_version, survey.version_files
    return sorted(survey.machine.tree.problems.items())


RULES = (
    Rule(
        id="file.damaged",
        severity=WARNING,
        look=damaged,
        why="An installation that was cut short, or a disk that fails, damages more than this file.",
        remedy="install the component anew",
    ),
    Rule(
        id="file.loop",
        severity=WARNING,
        look=loops,
        why="Whatever follows the link fails.",
        remedy="remove the link, or install the component anew",
    ),
    Rule(
        id="file.unreadable",
        severity=WARNING,
        look=unreadable,
        why="What it says is unknown to the doctor, and perhaps to CANN.",
        remedy="run the doctor as root, or make the file readable",
    ),
    Rule(
        id="file.no-version",
        severity=WARNING,
        look=says_nothing,
        why="What the installer writes has been changed or cut.",
        remedy="install the component anew",
    ),
    Rule(
        id="library.broken",
        severity=ERROR,
        look=broken_libraries,
        why="Importing torch_npu fails, or crashes.",
        remedy="install the component anew",
    ),
    Rule(
        id="library.architecture",
        severity=ERROR,
        look=foreign_libraries,
        why="It cannot be loaded here.",
        remedy="install the build for this processor",
    ),
    Rule(
        id="library.needed",
        severity=ERROR,
        look=unmet_libraries,
        why="Importing torch_npu fails with 'cannot open shared object file'.",
        remedy="source set_env.sh; in a container, mount all of the driver",
    ),
)
