"""The memory that this process has of the host's."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from pathlib import Path

from pytest_ascend.system.files import read_regular


def resident_bytes() -> int:
    """Return the bytes of this process that are in the host's memory, 0 where the system does not say."""
    try:
        pages = read_regular(Path("/proc/self/statm"), 1 << 10).split()[1]
    except OSError:  # no such file on this system
        return 0
    return int(pages) * resource.getpagesize()


def give_back() -> None:
    """Have the C library return freed memory to the system, which else it keeps: gigabytes after a large model."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
