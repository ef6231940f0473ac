"""Checks of files that exist and cannot be used: damaged, for another system, or not what their name says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from pytest_ascend.doctor.findings import Observation, check
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.machine import BINARY, LOOP, NOT_A_FILE, TOO_LARGE
from pytest_ascend.system.files import open_regular

#: Problem of a file -> the rule that reports it. Other problems are this user's permissions, or the disk's.
_RULES = {BINARY: "file.damaged", TOO_LARGE: "file.damaged", NOT_A_FILE: "file.damaged", LOOP: "file.loop"}


@check
def unusable(survey: Survey) -> Iterator[Observation]:
    """Find unusable files among those that earlier checks have read: unreadable, or without content."""
    tree, root = survey.machine.tree, survey.driver_folder.removesuffix("/driver")
    paths = [f"{root}/driver/version.info", f"{root}/firmware/version.info"]
    if survey.home:
        paths.append(f"{survey.home.path}/version.cfg")
        for arch in ("aarch64", "x86_64"):
            folder = f"{survey.home.path}/{arch}-linux"
            paths += [f"{folder}/{x}" for x in tree.names(folder) if re.fullmatch(r"ascend_\w+_install\.info", x)]
    with_versions = [path for path in paths if tree.read(path).exists]  # read now: the problems of these count, too
    for path, problem in sorted(tree.problems.items()):
        said = f"is {problem}" if problem in _RULES else f"cannot be read: {problem}"
        yield Observation(_RULES.get(problem, "file.unreadable"), f"{path} {said}", (path,))
    for path in with_versions:
        speaks = any(each.source.startswith(path) for c in survey.components.values() for each in c.evidence)
        if path not in tree.problems and tree.exists(path) and not speaks:
            yield Observation("file.no-version", f"{path} has no version", (path,))


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


@check
def loadable(survey: Survey) -> Iterator[Observation]:
    """Find libraries of the CANN in use and of the driver that exist and that the loader would reject."""
    tree, mine = survey.machine.tree, survey.machine.arch
    places = [f"{survey.home.path}/lib64/{name}" for name in CANN_LIBRARIES] if survey.home else []
    places += [f"{survey.driver_folder}/lib64/{name}" for name in DRIVER_LIBRARIES]
    # Libraries that a loader would find: in LD_LIBRARY_PATH, beside the library, in the system's folders.
    folders = [*survey.library_path, *(path.rpartition("/")[0] for path in places), "/usr/lib64", "/usr/lib", "/lib64"]
    folders += [f"/usr/lib/{mine}-linux-gnu", "/usr/local/lib"]
    found = frozenset(name for folder in dict.fromkeys(folders) for name in tree.names(folder))
    for path in filter(tree.exists, places):
        try:
            arch, needed = _header(tree.real(path))
        except Exception as error:  # noqa: BLE001 (a damaged file makes pyelftools raise anything, assertions too)
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            what = f"{path} is not a loadable library: {said[:100] or type(error).__name__}"
            yield Observation("library.broken", what, (path,))
            continue
        if mine and arch != mine:
            evidence = (f"{path}: {arch}", f"this machine: {mine}")
            yield Observation("library.architecture", f"{path} is for another processor", evidence)
        missing = [name for name in needed if _OURS.fullmatch(name) and name not in found]
        # Without a driver its libraries are missing too, which need not be reported again.
        if missing and survey.has_driver:
            looked = f"looked in {len(survey.library_path)} folders of LD_LIBRARY_PATH and beside it"
            what = f"{path.rpartition('/')[2]} needs {missing[0]}, which is not found"
            yield Observation("library.needed", what, (f"{path} needs {', '.join(missing[:6])}", looked))


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the architecture and the needed libraries. Raises pyelftools' errors for a file that is not a library."""
    with open_regular(path, _LARGEST_BYTES) as file:
        elf = ELFFile(file)
        arch, needed = _ARCHITECTURES.get(str(elf["e_machine"]), str(elf["e_machine"])), []
        for segment in (each for each in elf.iter_segments() if isinstance(each, DynamicSegment)):
            for count, tag in enumerate(segment.iter_tags()):
                if count > 2000:  # libraries have a few dozen
                    raise ValueError("its dynamic section has no end")
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.append(str(getattr(tag, "needed", "")))
        return arch, needed
