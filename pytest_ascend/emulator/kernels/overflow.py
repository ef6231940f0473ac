"""Overflow on a chip without Inf and NaN: results are the largest number or zero, and a status records it.

Source: CANN, aclrtFloatOverflowMode: Inf becomes the largest number and NaN zero; the first 910, 310P and 310B have no
other mode, a 950 does not have this mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_ascend.emulator.registry import Kernel, T

#: Families that only move values, and such operators of other families: Inf stays Inf.
_MOVING = ("movement", "overflow", "aclnnSWhere", "aclnnApplyTopKTopP")
#: Not empty after an overflow.
_status: set[str] = set()


def computes(kernel: Kernel) -> bool:
    """Return whether an operator computes values, which may overflow."""
    return kernel.family not in _MOVING and kernel.name not in _MOVING


def saturate(results: Iterable[Any]) -> None:
    """Replace Inf by the largest number with its sign and NaN by zero, in tensors and lists of them; set the status."""
    for each in results:
        if isinstance(each, list):
            saturate(each)
        elif isinstance(each, T) and each.is_floating_point() and not each.isfinite().all():
            _status.add("overflow")
            each.nan_to_num_()
