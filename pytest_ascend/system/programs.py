"""Run programs that query a driver and may hang, with a time limit; age and memory of this process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

V = TypeVar("V")

#: How long to wait until a killed program exits.
_KILLED_S = 0.2
#: Far more than the output on the largest machines; of stderr, the end is kept.
_MOST_OUTPUT, _MOST_COMPLAINTS = 1 << 20, 4096
#: Marks the line that is a program's answer, among the output of libraries.
MARK = "pytest-ascend answer: "


def process_began() -> float:
    """Return when this process began, by ``time.monotonic``.

    Return the present time if the system does not tell, or if the process is minutes old: it did something else before.
    """
    now = time.monotonic()
    try:
        # Field 22 is the start since boot, in ticks; the name in brackets before it may contain spaces.
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        since_boot = float(Path("/proc/uptime").read_text("ascii").split()[0])
        age_s = max(since_boot - int(fields[19]) / os.sysconf("SC_CLK_TCK"), 0.0)
        return now - age_s if age_s < 180 else now  # startup takes at most this long
    except (OSError, ValueError, IndexError):
        return now


@contextlib.contextmanager
def for_now(put: Callable[[V], object], value: V, before: V) -> Iterator[None]:
    """Set a value within the context, and restore ``before`` on exit."""
    try:
        put(value)
        yield
    finally:
        put(before)


def memory_limited(more_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Limit this process to ``more_bytes`` of memory more than now: allocations beyond that fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    held = re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text("ascii", "replace"))
    limit = (int(held[1]) << 10) + more_bytes if held else resource.RLIM_INFINITY
    bounds = [each for each in (limit, soft, hard) if each != resource.RLIM_INFINITY]
    limited = min(bounds, default=resource.RLIM_INFINITY), hard
    return for_now(partial(resource.setrlimit, resource.RLIMIT_DATA), limited, (soft, hard))


def resident_bytes() -> int:
    """Return the bytes of this process in the host's memory, 0 if the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123  (asked after every case)
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


def give_back() -> None:
    """Make the C library return freed memory to the system; otherwise it keeps gigabytes after a large model."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection for work that creates none: each pass visits all objects, including torch's."""
    with for_now(lambda on: gc.enable() if on else gc.disable(), False, gc.isenabled()):
        yield


@dataclass(frozen=True, slots=True)
class Reply:
    """The output of a program, or why there is none; ``late`` if it exceeded its time limit."""

    text: str = ""
    failure: str = ""
    late: bool = False

    @property
    def answer(self) -> Any:
        """Return the last answer printed by :func:`tell`; None if there is none, or only part of one."""
        line = next((line for line in reversed(self.text.splitlines()) if line.startswith(MARK)), "")
        with contextlib.suppress(ValueError):
            return json.loads(line.removeprefix(MARK))
        return None


def tell(answer: Any) -> None:
    """Print an answer, as JSON on a line of its own, for the process that runs this program."""
    sys.stdout.write(f"\n{MARK}{json.dumps(answer, default=str)}\n")


def run(command: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Reply:
    """Run a program for at most ``limit_s`` seconds, and return its output. Never raises."""
    try:
        process = subprocess.Popen(  # noqa: S603 (the driver's own tool, found where the user's PATH says)
            command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return Reply(failure=f"cannot be started: {error.strerror or error}")
    try:
        printed, complained = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Do not wait: inside a hanging driver, a process cannot be killed.
        process.kill()
        try:
            process.communicate(timeout=_KILLED_S)
        except subprocess.TimeoutExpired:
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
            threading.Thread(target=process.wait, daemon=True).start()
        return Reply(failure=f"gave no answer within {limit_s:g} s", late=True)
    text = (printed[:_MOST_OUTPUT] + complained[-_MOST_COMPLAINTS:]).decode("utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    return Reply(text) if process.returncode == 0 else Reply(text, f"ended with code {process.returncode}: {last}")
