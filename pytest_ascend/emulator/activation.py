"""Turning the emulated CANN on, in this process and in its children."""

from __future__ import annotations

import ctypes
import functools
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_ascend.emulator.build import emulated_cann
from pytest_ascend.emulator.choices import CANN, NUMERICS, checked, checked_cann
from pytest_ascend.errors import EmulatorUnavailable, UsageError

#: Marks an environment as emulated, for children and for whoever looks for signs of a real Ascend.
MARK = "PYTEST_ASCEND_EMULATED"


def is_active() -> bool:
    """Whether this process runs on the emulated CANN."""
    return os.environ.get(MARK) == "1"


def environment(
    *,
    devices: int = 2,
    memory_bytes: int | None = None,
    faults: Sequence[str] = (),
    numerics: str = "",
    cann: str = "",
    home: Path | None = None,
) -> dict[str, str]:
    """Return the variables that put a process and its children on the emulated CANN, compiling it at first use.

    ``devices``: how many there are (1 to 16). ``memory_bytes``: device memory of each, 8 GiB where nothing is said.
    ``faults``: kernels to replace, see :mod:`pytest_ascend.emulator.faults`. ``numerics``: exact or chip:SEED, see
    :mod:`pytest_ascend.emulator.chip`; where nothing is said, what the environment says, or else exact. ``cann``: the
    release that it answers as, such as 8.1.RC1; where nothing is said, what the environment says, or else the one that
    fits the installed torch_npu.
    Raises EmulatorUnavailable as :func:`pytest_ascend.emulator.build.emulated_cann` does, UsageError for numerics
    or a CANN that do not exist.
    """
    home = home or emulated_cann()
    libraries = [str(home / "lib64"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    settings = {
        MARK: "1",
        "PYTEST_ASCEND_EMULATED_DEVICES": str(devices),
        "PYTEST_ASCEND_FAULTS": ",".join(faults),
        NUMERICS: checked(numerics or os.environ.get(NUMERICS, "")),
        CANN: checked_cann(cann or os.environ.get(CANN, "")),
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(libraries)),
        # Operators run in the thread that calls them: handing each to torch_npu's queue thread costs two switches of
        # Python's lock an operator. The variable stands where a user has set it: the queue works here too.
        "TASK_QUEUE_ENABLE": os.environ.get("TASK_QUEUE_ENABLE", "0"),
    }
    if memory_bytes:
        settings["PYTEST_ASCEND_EMULATED_MEMORY"] = str(memory_bytes)
    return settings


def activate(
    *,
    devices: int = 2,
    memory_bytes: int | None = None,
    faults: Sequence[str] = (),
    numerics: str = "",
    cann: str = "",
) -> None:
    """Put this process, and those that it starts, on the emulated CANN. Call it before torch_npu is imported.

    Nothing has to be prepared: the libraries are loaded by path here, and children find them by ``LD_LIBRARY_PATH``.
    Once active it stays as it is: a second call in the same process changes nothing.
    Raises EmulatorUnavailable where torch_npu is already imported without it, and as :func:`environment` does;
    UsageError for a fault, numerics or a CANN that do not exist.
    """
    if is_active() and _is_loaded():
        _refuse_other(numerics, cann)
        return
    if "torch_npu" in sys.modules:
        raise EmulatorUnavailable(
            "torch_npu is already imported in this process, on another CANN",
            hint="activate the emulated device before torch is imported, or use: pytest-ascend emulate -- COMMAND",
        )
    given = environment(devices=devices, memory_bytes=memory_bytes, faults=faults, numerics=numerics, cann=cann)
    os.environ.update(given)
    libraries = Path(os.environ["ASCEND_HOME_PATH"], "lib64")
    for path in sorted(libraries.glob("*.so"), key=lambda each: each.name != "libascendcl.so"):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if faults:  # an unknown one must not wait for the first operator; this imports torch, which now finds its CANN
        from pytest_ascend.emulator.dispatch import planted  # noqa: PLC0415

        planted(faults)


def numerics() -> str:
    """Return how the emulated device of this process computes: exact or chip:SEED."""
    return checked(os.environ.get(NUMERICS, ""))


def cann() -> str:
    """Return the release that the emulated CANN of this process answers as, such as 8.1.RC1."""
    return checked_cann(os.environ.get(CANN, ""))


def _refuse_other(wanted: str, wanted_cann: str) -> None:
    for option, asked, there in (
        ("--numerics", wanted and checked(wanted), numerics()),
        ("--cann", wanted_cann and checked_cann(wanted_cann), cann()),
    ):
        if asked and asked != there:
            raise UsageError(
                f"the emulated device of this process was started with {option[2:]} {there}, and {asked} is asked for",
                hint=f"start it with that: pytest-ascend emulate {option} {asked} -- COMMAND",
            )


def _is_loaded() -> bool:
    return os.environ.get("ASCEND_HOME_PATH", "?") in Path("/proc/self/maps").read_text()


def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(os.environ["ASCEND_HOME_PATH"], "lib64", name)))


@functools.cache
def kernel_modules() -> tuple[str, ...]:
    """Return the names of the modules that hold kernels; what torch's CPU warns of there is not the user's doing."""
    folder = Path(__file__).resolve().parent / "kernels"
    return tuple(f"pytest_ascend.emulator.kernels.{each.name}" for each in pkgutil.iter_modules([str(folder)]))


def missing() -> tuple[str, ...]:
    """Return the functions and operator types of CANN that were called since the last time and are not emulated."""
    buffer = ctypes.create_string_buffer(1 << 15)
    _library("libascendcl.so").emu_take_missing(buffer, len(buffer))
    return tuple(dict.fromkeys(buffer.value.decode().split()))


def called() -> dict[str, int]:
    """Return how often each operator was called in this process, for those that were."""
    dispatch = sys.modules.get("pytest_ascend.emulator.dispatch")
    return dispatch.called() if dispatch else {}
