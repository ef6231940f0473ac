"""Sizes of memory as people write them."""

from __future__ import annotations

import re

from pytest_ascend.errors import UsageError

_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Give the bytes of ``512M``, ``8GiB`` or ``1073741824``. Raises UsageError for anything else, and for 0."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or not int(match[1]):
        raise UsageError(f"{text!r} is no size of memory", hint="give bytes, or a number with K, M, G or T, as in 8G")
    return int(match[1]) * _FACTORS[match[2].upper()]
