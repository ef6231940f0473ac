"""Activates the emulated CANN in this process and its children."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
from importlib.abc import MetaPathFinder
from pathlib import Path

from pytest_ascend.emulator.profiling import PROGRAM
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.emulator.system import library, runtime
from pytest_ascend.environment.signs import CLASH, CLASH_VARIABLE, EMULATED_VARIABLE
from pytest_ascend.system.errors import EmulatorUnavailable, UsageError

DEFAULTS = EmulatorSettings()


class BeforeTorchNpu(MetaPathFinder):
    """Frees setting names for torch_npu just before its libraries are loaded: torch's libraries are loaded by then."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Find nothing, but act when torch_npu's first library is imported."""
        if fullname == "torch_npu._C":
            sys.meta_path.remove(self)
            library(CLASH)


def is_active() -> bool:
    """Return whether this process uses the emulated CANN."""
    return os.environ.get(EMULATED_VARIABLE) == "1"


def environment(settings: EmulatorSettings = DEFAULTS) -> dict[str, str]:
    """Return the variables that make a process and its children use the emulated CANN, compiling it at first use.

    Raises EmulatorUnavailable like :func:`pytest_ascend.emulator.build.emulated_cann`, UsageError for invalid settings.
    """
    from pytest_ascend.emulator.build import emulated_cann  # noqa: PLC0415  (only to compile)
    from pytest_ascend.emulator.choices import RECOVERING  # noqa: PLC0415  (not light)

    home, state = emulated_cann(), {}
    if any(fault.startswith(RECOVERING) for fault in settings.faults):  # cards store which process used them last
        folder = tempfile.mkdtemp(prefix="pytest-ascend-emulated-")
        atexit.register(_forget, folder, os.getpid())
        state["PYTEST_ASCEND_EMULATED_STATE"] = folder
    libraries = [str(home / "lib64"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        EMULATED_VARIABLE: "1",
        CLASH_VARIABLE: "1" if (home / "lib64" / CLASH).exists() else "",
        **settings.variables(),
        **state,
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(libraries)),
        # torch_npu's profiler starts msprof.
        "PATH": os.pathsep.join(dict.fromkeys([str(home / PROGRAM.parent), os.environ.get("PATH", os.defpath)])),
        "PYTEST_ASCEND_EMULATED_PYTHON": sys.executable,
        # Operators run in the calling thread: torch_npu's queue thread would switch the GIL twice per operator. A
        # user's own setting is kept: the queue also works here.
        "TASK_QUEUE_ENABLE": os.environ.get("TASK_QUEUE_ENABLE", "0"),
    }


def _forget(folder: str, owner: int) -> None:
    """Remove what cards store about their last process, unless this is a fork of the owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def activate(settings: EmulatorSettings = DEFAULTS) -> None:
    """Make this process, and those that it starts, use the emulated CANN. Call it before torch_npu is imported.

    Nothing has to be prepared: the libraries are loaded by path here, and children find them by ``LD_LIBRARY_PATH``. A
    second call in the same process changes nothing. Raises EmulatorUnavailable if torch_npu was already imported
    without it, and as :func:`environment` does; UsageError for invalid faults, numerics, CANN or chip.
    """
    if is_active() and (
        os.environ.get("ASCEND_HOME_PATH", "?") in Path("/proc/self/maps").read_text("utf-8", "replace")
    ):
        asked, there = settings.resolved(), DEFAULTS.resolved()
        for name in ("numerics", "cann", "chip"):
            wanted, is_now = getattr(asked, name), getattr(there, name)
            if wanted != is_now:
                raise UsageError(
                    f"the emulated device of this process was started with {name} {is_now}, and {wanted} is asked for",
                    hint=f"start it with that: pytest-ascend emulate --{name} {wanted} -- COMMAND",
                )
        return
    if sys.modules.get("torch_npu", ...) is None:  # hidden by an earlier run on the CPU in this process
        del sys.modules["torch_npu"]
    if "torch_npu" in sys.modules:
        raise EmulatorUnavailable(
            "torch_npu is already imported in this process, on another CANN",
            hint="activate the emulated device before torch is imported, or use: pytest-ascend emulate -- COMMAND",
        )
    os.environ.update(environment(settings))
    libraries = Path(os.environ["ASCEND_HOME_PATH"], "lib64")
    for path in sorted(libraries.glob("*.so"), key=lambda each: each.name != "libascendcl.so"):
        if path.name == CLASH:
            sys.meta_path.insert(0, BeforeTorchNpu())
        else:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if settings.faults:  # report an unknown one now, not at the first operator; torch is imported and finds its CANN
        from pytest_ascend.emulator.dispatch import planted  # noqa: PLC0415

        planted(settings.faults)


def missing() -> tuple[str, ...]:
    """Return CANN functions and operator types called since the last call of this function that are not emulated."""
    buffer = ctypes.create_string_buffer(1 << 15)
    runtime().emu_take_missing(buffer, len(buffer))
    return tuple(dict.fromkeys(buffer.value.decode().split()))


def called() -> dict[str, int]:
    """Return the number of calls of each operator in this process."""
    dispatch = sys.modules.get("pytest_ascend.emulator.dispatch")
    return dispatch.called() if dispatch else {}
