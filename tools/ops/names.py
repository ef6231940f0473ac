"""Which operators are recorded: one line each in ``names.txt``, by the name that users know them by."""

from __future__ import annotations

import functools
from pathlib import Path

PATH = Path(__file__).with_name("names.txt")


@functools.cache
def names() -> tuple[str, ...]:
    """Return all names, sorted."""
    return tuple(sorted(PATH.read_text(encoding="utf-8").split()))
