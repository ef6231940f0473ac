"""Judge a measurement by the error model: are the device's errors as large as those of reference runs?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.error_model import (
    FEW,
    WINDOWS,
    ErrorModel,
    Limits,
    Octaves,
    cancelled,
    exponents_of,
    inner_by_model,
    octaves,
    sliding_max,
    sliding_sum,
)
from pytest_ascend.precision.errors import FAR, Measurement, QuickMeasurement
from pytest_ascend.precision.formats import ALLOWANCES, Allowances, Setting
from pytest_ascend.precision.tallies import ZERO_EXPONENT, Entries, Sums, percentile
from pytest_ascend.records.verdict import Rule

Floats: TypeAlias = npt.NDArray[Any]


#: The mean signed error is meaningful from this many elements on.
BIASED_FROM = 256
#: An octave below that of any value.
LOWEST = np.array([-4 * ZERO_EXPONENT])


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of a rule: the value it measured, and the limit."""

    rule: str
    value: float
    limit: float
    #: Error allowed at each of the given expected values, if the rule judges elements.
    allowed: Callable[[Floats], Floats] | None = None
    #: The number of the block that the rule judges.
    block: int | None = None

    @property
    def used(self) -> float:
        """The value divided by the limit: above 1 if the rule is broken."""
        if math.isnan(self.value) or math.isnan(self.limit) or self.value == math.inf:
            return math.inf  # unknown, or beyond measure: no reason to accept
        if self.limit == 0:
            return math.inf if self.value > 0 else 0.0
        return self.value / self.limit

    @property
    def is_broken(self) -> bool:
        """Whether the result is to be rejected."""
        return self.used > 1


def judge_by_model(found: Measurement, setting: Setting, use: Allowances = ALLOWANCES) -> Finding:
    """Return the rule that the device's errors come closest to breaking; broken if they exceed those of reference
    runs."""
    if not all(each.count for each in found.reference_runs):
        found = replace(found, reference_runs=[each for each in found.reference_runs if each.count])
    rounding = _rounding(found.actual, setting, use)
    if not rounding.is_broken:
        return rounding
    few = _few_elements(found, setting, use)
    if not few.is_broken:
        return few
    entries = found.actual.spread.entries()
    run_entries = [each.spread.entries() for each in found.reference_runs]
    lowest, highest = exponents_of(entries, setting.format)
    # Where the device overflows, reference runs may have larger numbers than any of its own.
    highest = max([highest, *(exponents_of(each, setting.format)[1] for each in run_entries)])
    present = [each for each in run_entries if (each.exponents > -ZERO_EXPONENT).any()]  # the others hold zeros only
    reference_runs = octaves(present, setting.format, lowest, highest - lowest + 1) if present else None
    if reference_runs is not None and setting.accumulation != 1 and (merged := cancelled(reference_runs)):
        lowest += merged
        reference_runs = octaves(present, setting.format, lowest, highest - lowest + 1)
    device = octaves([entries], setting.format, lowest, highest - lowest + 1)
    model = ErrorModel(reference_runs, setting, np.arange(lowest, highest + 1), use)
    allowed = _with_zero(model.limits(found.actual.count), model, run_entries, device)
    (error_max,) = device.error_max
    worst = int((error_max / allowed.element).argmax())
    value, limit = float(error_max[worst]), float(allowed.element[worst])
    at_zero = _zero_errors(entries, setting)[0]
    findings = (
        Finding(rule=Rule.ZERO, value=at_zero, limit=allowed.zero, allowed=allowed.of),
        Finding(rule=Rule.ELEMENT, value=value, limit=limit, allowed=allowed.of),
        _root_mean_square(device, model),
        _blocks(found, setting, use),
        _bias(found, setting, use),
    )
    return max(findings, key=lambda each: (each.used > 1 and each.allowed is not None, each.used))


def judge_quickly(found: QuickMeasurement, setting: Setting, use: Allowances, *, is_beside: bool) -> Finding | None:
    """Return why a first look suffices to accept a result (no error, rounding, or sums), or None.

    ``is_beside``: reference runs decide what rounding does not explain.
    """
    is_near, few = found.ulp_max <= FAR, found.count < FEW
    if is_near and not (rounding := _rounding(found, setting, use)).is_broken:
        return rounding
    if is_beside or (is_near and not few):
        return None
    limit = float(inner_by_model(setting, LOWEST, use, use.sums if few else use.sums_rms)[0])
    return Finding(rule=Rule.ELEMENT, value=found.furthest, limit=limit) if found.furthest <= limit else None


def _rounding(sums: Sums | QuickMeasurement, setting: Setting, use: Allowances) -> Finding:
    """Judge the errors as if rounding alone caused them, which settles most results quickly."""
    count = max(sums.count, 1)
    element = Finding(rule=Rule.LARGEST_ULPS, value=sums.ulp_max, limit=use.element_ulps)
    if setting.distinct < FEW:
        return element
    bias = max(map(abs, biases(sums)))
    root = math.sqrt(sums.ulp_square_sum / count)
    return max(
        element,
        Finding(rule=Rule.RMS_ULPS, value=root, limit=use.rms_ulps),
        Finding(rule=Rule.BIAS, value=bias, limit=use.bias_ulps),
        key=lambda each: each.used,
    )


def _within_reference_runs(ulps: Floats, shown: Floats, setting: Setting, use: Allowances) -> Finding:
    """Compare few errors in ulp with those of reference runs at the same elements."""
    largest = use.sampled_largest if setting.sampled else use.largest
    allowed = use.element_ulps + largest * np.maximum(shown - 0.5, 0)
    used = ulps / allowed
    place = int(used.argmax())
    value = float(ulps[place]) if shown[place] < math.inf else math.inf
    return Finding(rule=Rule.ELEMENT_ULPS, value=value, limit=float(allowed[place]))


def _few_elements(found: Measurement, setting: Setting, use: Allowances) -> Finding:
    """Accept what is certainly within the limits of every rule: the second shortcut.

    Below what the model of sums allows in the lowest octave (of few elements, of which no mean is taken: for one
    element), or, of few elements, below what the errors of reference runs of the same elements allow.
    """
    sums, few = found.actual, found.actual.count < FEW
    if not found.reference_runs or (setting.accumulation or 1) > 1:
        factor = use.sums if few else use.sums_rms
        limit = float(inner_by_model(setting, LOWEST, use, factor)[0])
        if sums.abs_max <= limit and (few or _says_nothing_on_bias(found.actual.count, setting, use)):
            return Finding(rule=Rule.ELEMENT, value=sums.abs_max, limit=limit)
    elif few and all(each.count == sums.count for each in found.reference_runs):
        shown = np.max([each.spread.entries().lower for each in found.reference_runs], axis=0)
        return _within_reference_runs(sums.spread.entries().lower, shown, setting, use)
    return Finding(rule=Rule.ELEMENT, value=sums.abs_max, limit=0.0)


def _zero_errors(entries: Entries, setting: Setting) -> tuple[float, float]:
    """Return a lower and an upper bound of the largest error where zero was expected."""
    zeros, tiniest = entries.exponents == -ZERO_EXPONENT, setting.format.tiniest
    lower, upper = (float(each[zeros].max(initial=0.0)) * tiniest for each in (entries.lower, entries.upper))
    return lower, upper


def _with_zero(allowed: Limits, model: ErrorModel, reference_runs: Sequence[Entries], device: Octaves) -> Limits:
    """Where zero is expected, allow the errors of reference runs there, and those allowed for the smallest values.

    The smallest values are the lowest octave of few elements, or the lowest 64 of many: a value cut off at zero (by a
    ReLU, a mask) may have the error of values that were not.
    """
    setting, use = model.setting, model.use
    shown = max((_zero_errors(each, setting)[1] for each in reference_runs), default=0.0)
    is_many = device.count.sum() >= use.independent
    reach = int(np.searchsorted(np.cumsum(device.count[0]), use.independent)) + 1 if is_many else 1
    zero = max(model.largest * shown, float(allowed.element[:reach].max()), setting.format.tiniest)
    return Limits(allowed.lowest, allowed.element, zero)


def _root_mean_square(device: Octaves, model: ErrorModel) -> Finding:
    """Compare over the narrowest window around each octave with enough elements for a meaningful mean.

    Where a single element may make most of the error, as a sign that an optimizer's first step takes from a gradient
    near zero does, the device's largest error is left out of the mean: it is judged by itself.
    """
    worst = Finding(rule=Rule.RMS, value=0.0, limit=1.0)
    (total,), (error_square,), (error_max,) = device.count, device.error_square, device.error_max
    pending = total > 0
    if total.sum() < model.use.independent:
        return worst
    for half_width in WINDOWS:
        count = np.maximum(sliding_sum(total, half_width), 1)
        enough = pending & (count >= model.use.independent)
        if not enough.any():
            continue
        pending &= ~enough
        square = sliding_sum(error_square, half_width)
        if model.has_runs:
            largest = np.where(model.outlying(half_width), sliding_max(error_max, half_width), 0.0)
            square = np.maximum(square - largest**2, 0)
        value = np.sqrt(square / count)
        limit = model.root_mean_square(half_width, total)
        ratio = np.nan_to_num(np.where(enough, value / limit, 0), posinf=np.inf)
        place = int(ratio.argmax())
        if ratio[place] > worst.used:
            worst = Finding(rule=worst.rule, value=float(value[place]), limit=float(limit[place]))
    return worst


def _blocks(found: Measurement, setting: Setting, use: Allowances) -> Finding:
    """Compare each block's root mean square error with the largest of reference runs at its magnitude."""
    rule = Rule.BLOCK
    nothing = Finding(rule=rule, value=0.0, limit=math.inf)
    if not found.reference_runs or setting.distinct < FEW or not found.actual.blocks or setting.branching:
        return nothing
    device, ulp_square = (np.concatenate(each) for each in zip(*found.actual.blocks, strict=True))
    reference_runs = [np.concatenate([block[0] for block in each.blocks]) for each in found.reference_runs]
    known = np.flatnonzero(~np.isnan(np.sum([device, *reference_runs], axis=0)))
    if not known.size:
        return nothing
    device, ulp_square, *reference_runs = (each[known] for each in (device, ulp_square, *reference_runs))
    octave = np.frexp(ulp_square)[1] // 2
    octave -= octave.min()
    shown = np.zeros(int(octave.max()) + 1)
    for each in reference_runs:
        inner = each - ulp_square / 12
        np.maximum.at(shown, octave, np.sqrt(np.maximum(inner, 0)))
    shown = sliding_max(shown, 2)
    limit = use.rms_ulps * np.sqrt(ulp_square) + use.block * shown[octave]
    if (setting.accumulation or 1) > 1:
        exponents = np.frexp(np.sqrt(ulp_square))[1] + setting.format.digits - 2
        limit += inner_by_model(setting, exponents, use, use.sums_rms)
    place = int((device / limit**2).argmax())
    return Finding(rule=rule, value=math.sqrt(device[place]), limit=float(limit[place]), block=int(known[place]))


def _bias(found: Measurement, setting: Setting, use: Allowances) -> Finding:
    """Reject many results that are rounded in the same direction, and hardly wrong otherwise.

    Not judged where inner errors are as large as roundings: a whole row of results may share one error.
    """
    value = max(map(abs, biases(found.actual)))
    rule = Rule.BIAS
    if _says_nothing_on_bias(found.actual.count, setting, use):
        return Finding(rule=rule, value=value, limit=math.inf)
    without = 0.0 if found.actual.ulp_max <= 2 else 1.0
    # The 90th percentile of the error beyond rounding, in ulp: a few elements may have cancelled.
    inner = max(
        (max(percentile(each.spread.entries(), 0.9) - 0.5, 0.0) for each in found.reference_runs), default=without
    )
    if inner > 0.5:
        return Finding(rule=rule, value=value, limit=math.inf)
    shown = max((max(map(abs, biases(each))) for each in found.reference_runs), default=0.0)
    chance = 6 * 0.3 / math.sqrt(found.actual.count)
    return Finding(rule=rule, value=value, limit=use.bias_ulps + use.largest * shown + use.rms * inner + chance)


def _says_nothing_on_bias(count: int, setting: Setting, use: Allowances) -> bool:
    """Whether there are too few values for a mean, or sums of a known length may share an error of a rounding."""
    if setting.distinct < FEW or count < BIASED_FROM:
        return True
    terms = setting.accumulation or 1
    return terms > 1 and use.sums_rms * math.sqrt(terms) * 2.0 ** (setting.format.digits - 24) > use.bias_ulps / 4


def biases(sums: Sums | QuickMeasurement) -> tuple[float, float]:
    """Return the mean signed errors in ulp: away from zero, and upwards."""
    count = max(sums.count, 1)
    return sums.outward_sum / count, sums.upward_sum / count
