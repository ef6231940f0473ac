"""Judging a measurement by the error model: is what the device shows of the size that honest results show?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.measure import Measurement
from pytest_ascend.precision.model import (
    ALLOWANCES,
    WINDOWS,
    Allowances,
    Limits,
    Octaves,
    Setting,
    exponents_of,
    limits,
    octaves,
    sliding_sum,
)
from pytest_ascend.precision.spread import ZERO_EXPONENT, Entries
from pytest_ascend.precision.sums import Sums

Floats: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The rule that a result broke: by what value, against what limit."""

    rule: str
    value: float
    limit: float
    #: Error allowed at each of the given expected values, where the rule is one about elements.
    allowed: Callable[[Floats], Floats] | None = None


def judge_by_model(found: Measurement, setting: Setting, use: Allowances = ALLOWANCES) -> Finding | None:
    """Give the first rule that the device's errors break, or None where they look like honest ones."""
    entries = found.actual.spread.entries()
    if _is_rounding(found, setting, use):
        return None
    lowest, highest = exponents_of(entries)
    length = highest - lowest + 1
    device = octaves(_nonzero(entries), setting.format, lowest, length)
    honest_entries = [each.spread.entries() for each in found.honest]
    honest = [octaves(_nonzero(each), setting.format, lowest, length) for each in honest_entries]
    allowed = limits(honest, setting, np.arange(lowest, highest + 1), device.count, use)
    allowed = _with_zero(allowed, honest_entries, device, setting, use)
    return (
        _elements(device, entries, allowed, setting) or _root_mean_square(device, allowed) or _bias(found, setting, use)
    )


def _is_rounding(found: Measurement, setting: Setting, use: Allowances) -> bool:
    """Whether the errors are so small that rounding alone explains them: the quick way out for most results."""
    sums = found.actual
    count = max(sums.count, 1)
    bias = max(abs(sums.outward_sum), abs(sums.upward_sum)) / count
    root = (sums.ulp_square_sum / count) ** 0.5
    few = setting.distinct < 32
    return sums.ulp_max <= use.element_ulps and (few or (root <= use.rms_ulps and bias <= use.bias_ulps))


def _nonzero(entries: Entries) -> Entries:
    keep = entries.exponents > -ZERO_EXPONENT
    return Entries(*(each[keep] for each in entries))


def _zero_errors(entries: Entries, setting: Setting) -> tuple[float, float]:
    """Give the largest error where zero was expected: at least, and at most."""
    zeros = entries.exponents == -ZERO_EXPONENT
    tiniest = setting.format.tiniest
    return (
        float(entries.lower[zeros].max(initial=0.0)) * tiniest,
        float(entries.upper[zeros].max(initial=0.0)) * tiniest,
    )


def _with_zero(
    allowed: Limits, honest: Sequence[Entries], device: Octaves, setting: Setting, use: Allowances
) -> Limits:
    """Where zero is expected, allow what honest results show there, and what is allowed for the smallest values.

    Of few elements that is the lowest octave; of many the lowest 64 elements, since a small value cut off at zero
    (by a ReLU, a mask) may have the error of values that were not.
    """
    shown = max((_zero_errors(each, setting)[1] for each in honest), default=0.0)
    reach = 1
    if device.count.sum() >= use.independent:
        reach = int(np.searchsorted(np.cumsum(device.count), use.independent)) + 1
    zero = max(use.largest * shown, float(allowed.element[:reach].max()), setting.format.tiniest)
    return Limits(allowed.lowest, allowed.element, allowed.rms, zero)


def _elements(device: Octaves, entries: Entries, allowed: Limits, setting: Setting) -> Finding | None:
    at_zero = _zero_errors(entries, setting)[0]
    ratio = device.error_max / allowed.element
    place = int(ratio.argmax())
    if at_zero > allowed.zero and at_zero / allowed.zero >= ratio[place]:
        return Finding(rule="error where zero is expected", value=at_zero, limit=allowed.zero, allowed=allowed.of)
    if ratio[place] <= 1:
        return None
    value, limit = float(device.error_max[place]), float(allowed.element[place])
    return Finding(rule="error of one element", value=value, limit=limit, allowed=allowed.of)


def _root_mean_square(device: Octaves, allowed: Limits) -> Finding | None:
    """Compare over the narrowest window around each octave that holds enough elements for a mean to say something."""
    worst, broken = 1.0, None
    pending = device.count > 0
    for half_width in WINDOWS:
        count = np.maximum(sliding_sum(device.count, half_width), 1)
        value = np.sqrt(sliding_sum(device.error_square, half_width) / count)
        limit = np.sqrt(sliding_sum(device.count * allowed.rms**2, half_width) / count)
        enough = pending & ((count >= ALLOWANCES.independent) | (half_width >= device.count.size))
        pending &= ~enough
        ratio = np.where(enough, value / limit, 0)
        place = int(ratio.argmax())
        if ratio[place] > worst:
            worst = float(ratio[place])
            broken = Finding(rule="root mean square error", value=float(value[place]), limit=float(limit[place]))
    return broken


def _bias(found: Measurement, setting: Setting, use: Allowances) -> Finding | None:
    """Many results that are rounded, and hardly wrong otherwise, must not all be rounded the same way."""
    if setting.distinct < 32 or found.actual.count < 256:
        return None
    if not found.honest and found.actual.ulp_max > 2:
        return None
    shown = max((max(map(abs, biases(each))) for each in found.honest), default=0.0)
    inner = max((_inner_ulps(each) for each in found.honest), default=0.0)
    chance = 6 * 0.3 / found.actual.count**0.5
    limit = use.bias_ulps + use.largest * shown + use.rms * inner + chance
    value = max(map(abs, biases(found.actual)))
    return Finding(rule="mean signed error in ulp", value=value, limit=limit) if value > limit else None


def biases(sums: Sums) -> tuple[float, float]:
    """Give the mean signed error in ulp: away from zero, and upwards."""
    count = max(sums.count, 1)
    return sums.outward_sum / count, sums.upward_sum / count


def _inner_ulps(sums: Sums) -> float:
    """Root mean square of the errors beyond rounding, in ulp: a rounding has a variance of 1/12."""
    return float(max(sums.ulp_square_sum / max(sums.count, 1) - 1 / 12, 0.0)) ** 0.5
