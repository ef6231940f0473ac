"""Files that anybody may have written: regular ones only, and of a bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, limit_bytes: int) -> BinaryIO:
    """Open a file to read. Raises OSError as ``open`` does, and for what is no regular file or is larger than that.

    A pipe would have the reader wait for ever, a device never end.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes:
        return file
    file.close()
    raise OSError(f"no regular file of at most {limit_bytes} bytes")


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Read such a file whole, and no further than the limit even where it grows meanwhile."""
    with open_regular(path, limit_bytes) as file:
        return file.read(limit_bytes)
