"""What wrong values usually mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
#: Says whether wrong values (float64, finite ones only) have one usual cause.
Test: TypeAlias = Callable[[Array, Array], bool]

#: Bits of the significand that each dtype keeps, from torch's names.
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def causes(actual: Array, expected: Array, dtype: str) -> Iterator[str]:
    """Yield what the wrong values of a result of ``dtype`` usually mean, the most telling first."""
    if not np.issubdtype(actual.dtype, np.number):
        return
    ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
    special = list(_special(ours, theirs))
    yield from special
    finite = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[finite], theirs[finite]
    if special or not ours.size:
        return
    with np.errstate(all="ignore"):
        found = next((text for test, text in CAUSES if test(ours, theirs)), None) or _by_digits(ours, theirs, dtype)
    if found:
        yield found


def _special(ours: Array, theirs: Array) -> Iterator[str]:
    if np.any(np.isnan(theirs) & ~np.isnan(ours)):
        yield "NaN was dropped, as by a maximum, minimum or clamp that does not pass it on"
    elif np.any(np.isnan(ours)):
        yield "NaN where there is none, as of memory that was never written, 0/0, or an overflow on the way"
    elif np.any(np.isinf(theirs) & np.isfinite(ours)):
        yield "a finite number for Inf, as of saturation instead of overflow"
    elif np.any(np.isinf(ours)):
        yield "Inf where there is none, as of an overflow on the way"


def _zeros(ours: Array, theirs: Array) -> bool:
    return bool(np.all(ours == 0) and np.any(theirs))


def _negated(ours: Array, theirs: Array) -> bool:
    return bool(np.allclose(ours, -theirs, rtol=1e-2, atol=0))


def _constant(ours: Array, _: Array) -> bool:
    return ours.size > 3 and bool(np.all(ours == ours[0]))


def _far(ours: Array, theirs: Array) -> bool:
    return float(np.median(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300))) > 0.05


def _rearranged(ours: Array, theirs: Array) -> bool:
    alike = ours.size > 3 and bool(np.allclose(np.sort(ours), np.sort(theirs), rtol=1e-2, atol=1e-30))
    return alike and _far(ours, theirs)


def _shifted(ours: Array, theirs: Array) -> bool:
    if ours.size < 4 or not _far(ours, theirs):
        return False
    pairs = ((ours[1:], theirs[:-1]), (ours[:-1], theirs[1:]))
    return any(float(np.mean(np.isclose(a, b, rtol=1e-2))) > 0.9 for a, b in pairs)


def _scaled(ours: Array, theirs: Array) -> bool:
    ratio = ours[theirs != 0] / theirs[theirs != 0]
    if ratio.size < 4 or not np.isfinite(ratio).all():
        return False
    middle = float(np.median(ratio))
    return abs(middle - 1) > 0.01 and float(np.max(np.abs(ratio - middle))) < 0.01 * abs(middle)


def _offset(ours: Array, theirs: Array) -> bool:
    gap = ours - theirs
    middle = np.median(gap)
    return ours.size > 3 and middle != 0 and float(np.max(np.abs(gap - middle))) < 0.05 * abs(middle)


def _unrelated(ours: Array, theirs: Array) -> bool:
    if ours.size < 16 or not ours.any() or not theirs.any():
        return False
    lengths = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    return lengths > 0 and abs(float(ours @ theirs)) < 0.5 * lengths


#: In this order: the first that holds is told.
CAUSES: tuple[tuple[Test, str], ...] = (
    (_zeros, "zeros instead of values, as of what is not computed, not written, masked away, or flushed as too small"),
    (_constant, "one value for all, as where a broadcast or an offset is ignored"),
    (_negated, "the sign is wrong"),
    (_shifted, "the values of the neighbours, as of an offset or index off by one"),
    (_rearranged, "the right values in the wrong places, as where strides, an axis or an order are ignored"),
    (_scaled, "all off by one factor, as of a scale, a mean for a sum, or a factor left out"),
    (_offset, "all off by one amount, as of a bias or a term left out or added twice"),
    (_unrelated, "hardly related to what was expected (cosine below 0.5)"),
)

#: Significand bits of formats that float32 results are silently computed in, and what these are called.
SHORTER = {8: "bfloat16", 11: "float16 or a 10-bit mantissa (TF32, HF32)", 12: "an 11-bit mantissa (HF32)"}


def _by_digits(ours: Array, theirs: Array, dtype: str) -> str:
    """Judge by the size of the relative error, or by low bits that are all zero."""
    digits = DIGITS.get(dtype, 24)
    kept = _kept_bits(ours, digits)
    if kept in SHORTER and kept < digits:
        return f"values have only {kept} significant bits: rounded to {SHORTER[kept]}"
    relative = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)
    typical = float(np.median(relative))
    away = np.sign(ours - theirs) * np.sign(theirs)
    if ours.size >= 32 and typical < 4 * 2.0 ** (1 - digits) and abs(float(np.mean(away))) > 0.9:
        return "all " + ("away from" if away[0] > 0 else "towards") + " zero by about an ulp: another rounding mode"
    if ours.size >= 16 and digits == 24 and 2.0**-16 < typical < 2.0**-8:
        return "errors as large as those of a 16-bit format or a 10-bit mantissa"
    if ours.size >= 16 and digits < 24 and 2.0 ** (2 - digits) < typical < 0.25:
        return "errors of many ulp, as of sums accumulated in the short format instead of float32"
    return ""


def _kept_bits(values: Array, digits: int) -> int:
    """How many significand bits are ever used (of at most 4096 values that are not zero)."""
    some = values[values != 0][:4096]
    if some.size < 16:
        return digits
    significands = np.abs(np.frexp(some)[0]) * 2.0**53
    used = np.bitwise_or.reduce(significands.astype(np.int64))
    lowest = int(used & -used).bit_length() - 1
    return 53 - lowest
