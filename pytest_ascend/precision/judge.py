"""Judging a measurement by the error model: is what the device shows of the size that honest results show?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import ALLOWANCES, Allowances, Setting
from pytest_ascend.precision.look import FAR, Few, Look
from pytest_ascend.precision.measure import Measurement
from pytest_ascend.precision.model import (
    FEW,
    WINDOWS,
    ErrorModel,
    Limits,
    Octaves,
    exponents_of,
    inner_by_model,
    largest_of,
    limits_of_few,
    octaves,
    sliding_max,
    sliding_sum,
)
from pytest_ascend.precision.spread import ZERO_EXPONENT, Entries, percentile
from pytest_ascend.precision.sums import Sums

Floats: TypeAlias = npt.NDArray[Any]


#: Below every octave that a value can be in.
LOWEST = np.array([-4 * ZERO_EXPONENT])


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a rule looked at: the value, and the limit that it must not exceed."""

    rule: str
    value: float
    limit: float
    #: Error allowed at each of the given expected values, where the rule is one about elements.
    allowed: Callable[[Floats], Floats] | None = None
    #: The number of the block that the rule is about.
    block: int | None = None

    @property
    def used(self) -> float:
        """The share of the limit that is used up: above 1 where the rule is broken."""
        if math.isnan(self.value) or math.isnan(self.limit):
            return math.inf  # nobody knows: no reason to accept
        if self.limit == 0:
            return math.inf if self.value > 0 else 0.0
        return self.value / self.limit

    @property
    def is_broken(self) -> bool:
        """Whether the result is to be rejected."""
        return self.used > 1


def judge_by_model(found: Measurement, setting: Setting, use: Allowances = ALLOWANCES) -> Finding:
    """Return the rule of which the device's errors use up most; broken where they do not look like honest ones."""
    if not all(each.count for each in found.honest):
        found = replace(found, honest=[each for each in found.honest if each.count])
    rounding = _rounding(found.actual, setting, use)
    if not rounding.is_broken:
        return rounding
    few = _few_elements(found, setting, use)
    if not few.is_broken:
        return few
    entries = found.actual.spread.entries()
    honest_entries = [each.spread.entries() for each in found.honest]
    lowest, highest = exponents_of(entries, setting.format)
    # Where the device overflows, honest results may have numbers above all of its own.
    highest = max(highest, *(exponents_of(each, setting.format)[1] for each in honest_entries), lowest)
    length = highest - lowest + 1
    device = octaves(_nonzero(entries), setting.format, lowest, length)
    honest = None
    if honest_entries:
        together = _nonzero(Entries(*map(np.concatenate, zip(*honest_entries, strict=True))))
        # Where honest results show no element but zeros, they say nothing of any octave.
        honest = octaves(together, setting.format, lowest, length) if together.counts.size else None
    model = ErrorModel(honest, setting, np.arange(lowest, highest + 1), use)
    allowed = _with_zero(model.limits(found.actual.count), honest_entries, device, setting, use)
    findings = (
        _at_zero(entries, allowed, setting),
        _elements(device, allowed),
        _root_mean_square(device, model),
        _blocks(found, setting, use),
        _bias(found, setting, use),
    )
    return max(findings, key=lambda each: (each.used > 1 and each.allowed is not None, each.used))


def judge_look(found: Look, setting: Setting, use: Allowances, *, is_beside: bool) -> Finding | None:
    """Return why a first look is enough to accept a result: no error, rounding, or sums; None where it is not.

    ``is_beside`` says that honest results decide about what rounding does not explain.
    """
    is_near, few = found.ulp_max <= FAR, found.count < FEW
    if is_near and not (rounding := _rounding(found, setting, use)).is_broken:
        return rounding
    if found.few is not None:
        return _within_few(found.few, setting, use)
    if is_beside or (is_near and not few):
        return None
    limit = float(inner_by_model(setting, LOWEST, use, use.sums if few else use.sums_rms)[0])
    return Finding(rule="error of one element", value=found.furthest, limit=limit) if found.furthest <= limit else None


def _within_few(found: Few, setting: Setting, use: Allowances) -> Finding | None:
    """Compare few elements one by one, with every rule that applies to them; None where they need a closer look.

    The limits are :class:`ErrorModel`'s, where one window of octaves holds all honest errors.
    """
    beside = _within_honest(found.ulps, np.maximum.reduce(found.shown), setting, use)
    if not beside.is_broken and (setting.accumulation or 1) == 1:
        return beside
    if not (found.magnitude > 0).all() or found.shown.size > use.independent:
        return None
    allowed = limits_of_few(found, setting, use)
    error = found.ulps * found.ulp
    place = int((error / allowed).argmax())
    finding = Finding(rule="error of one element", value=float(error[place]), limit=float(allowed[place]))
    return None if finding.is_broken else finding


def _within_honest(ulps: Floats, shown: Floats, setting: Setting, use: Allowances) -> Finding:
    """Compare few errors in ulp with what honest results show at the same elements."""
    allowed = use.element_ulps + largest_of(setting, use) * np.maximum(shown - 0.5, 0)
    used = ulps / allowed
    place = int(used.argmax())
    value = float(ulps[place]) if shown[place] < math.inf else math.inf
    return Finding(rule="error of one element in ulp", value=value, limit=float(allowed[place]))


def _rounding(sums: Sums | Look, setting: Setting, use: Allowances) -> Finding:
    """The errors, if rounding alone is to explain them: the quick way out for most results."""
    count = max(sums.count, 1)
    element = Finding(rule="largest error in ulp", value=sums.ulp_max, limit=use.element_ulps)
    if setting.distinct < FEW:
        return element
    bias = max(map(abs, biases(sums)))
    root = math.sqrt(sums.ulp_square_sum / count)
    return max(
        element,
        Finding(rule="root mean square error in ulp", value=root, limit=use.rms_ulps),
        Finding(rule="mean signed error in ulp", value=bias, limit=use.bias_ulps),
        key=lambda each: each.used,
    )


def _few_elements(found: Measurement, setting: Setting, use: Allowances) -> Finding:
    """What is certainly within the limits of every rule: the second quick way out.

    Below what the model of sums allows in the lowest octave (of few elements, of which no mean is taken: for one
    element), or, of few elements, below what the honest errors of the same elements allow.
    """
    sums, few = found.actual, found.actual.count < FEW
    if not found.honest or (setting.accumulation or 1) > 1:
        factor = use.sums if few else use.sums_rms
        limit = float(inner_by_model(setting, LOWEST, use, factor)[0])
        if sums.abs_max <= limit and (few or _says_nothing_on_bias(found, setting, use)):
            return Finding(rule="error of one element", value=sums.abs_max, limit=limit)
    elif few and all(each.count == sums.count for each in found.honest):
        shown = np.max([each.spread.entries().lower for each in found.honest], axis=0)
        return _within_honest(sums.spread.entries().lower, shown, setting, use)
    return Finding(rule="error of one element", value=sums.abs_max, limit=0.0)


def _nonzero(entries: Entries) -> Entries:
    keep = entries.exponents > -ZERO_EXPONENT
    return Entries(*(each[keep] for each in entries))


def _zero_errors(entries: Entries, setting: Setting) -> tuple[float, float]:
    """Return the largest error where zero was expected: at least, and at most."""
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
    zero = max(largest_of(setting, use) * shown, float(allowed.element[:reach].max()), setting.format.tiniest)
    return Limits(allowed.lowest, allowed.element, zero)


def _at_zero(entries: Entries, allowed: Limits, setting: Setting) -> Finding:
    value = _zero_errors(entries, setting)[0]
    return Finding(rule="error where zero is expected", value=value, limit=allowed.zero, allowed=allowed.of)


def _elements(device: Octaves, allowed: Limits) -> Finding:
    place = int((device.error_max / allowed.element).argmax())
    value, limit = float(device.error_max[place]), float(allowed.element[place])
    return Finding(rule="error of one element", value=value, limit=limit, allowed=allowed.of)


def _root_mean_square(device: Octaves, model: ErrorModel) -> Finding:
    """Compare over the narrowest window around each octave that holds enough elements for a mean to say something."""
    worst = Finding(rule="root mean square error", value=0.0, limit=1.0)
    pending = device.count > 0
    if device.count.sum() < model.use.independent:
        return worst
    for half_width in WINDOWS:
        if not pending.any():
            break
        count = np.maximum(sliding_sum(device.count, half_width), 1)
        value = np.sqrt(sliding_sum(device.error_square, half_width) / count)
        limit = model.root_mean_square(half_width, device.count)
        enough = pending & (count >= model.use.independent)
        pending &= ~enough
        ratio = np.nan_to_num(np.where(enough, value / limit, 0), posinf=np.inf)
        place = int(ratio.argmax())
        if ratio[place] > worst.used:
            worst = Finding(rule=worst.rule, value=float(value[place]), limit=float(limit[place]))
    return worst


def _blocks(found: Measurement, setting: Setting, use: Allowances) -> Finding:
    """Compare the root mean square of each block of neighbours with the largest of honest blocks of its magnitude."""
    rule = "root mean square error of one block"
    nothing = Finding(rule=rule, value=0.0, limit=math.inf)
    if not found.honest or setting.distinct < FEW or not found.actual.blocks or setting.branching:
        return nothing
    device, ulp_square = (np.concatenate(each) for each in zip(*found.actual.blocks, strict=True))
    honest = [np.concatenate([block[0] for block in each.blocks]) for each in found.honest]
    known = np.flatnonzero(~np.isnan(np.sum([device, *honest], axis=0)))
    if not known.size:
        return nothing
    device, ulp_square, *honest = (each[known] for each in (device, ulp_square, *honest))
    octave = np.frexp(ulp_square)[1] // 2
    octave -= octave.min()
    shown = np.zeros(int(octave.max()) + 1)
    for each in honest:
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
    """Many results that are rounded, and hardly wrong otherwise, must not all be rounded the same way.

    Nothing is said where inner errors are as large as roundings: one error may be shared by a whole row of results.
    """
    value = max(map(abs, biases(found.actual)))
    rule = "mean signed error in ulp"
    if _says_nothing_on_bias(found, setting, use):
        return Finding(rule=rule, value=value, limit=math.inf)
    inner = _honest_inner_ulps(found)
    if inner > 0.5:
        return Finding(rule=rule, value=value, limit=math.inf)
    shown = max((max(map(abs, biases(each))) for each in found.honest), default=0.0)
    chance = 6 * 0.3 / math.sqrt(found.actual.count)
    return Finding(rule=rule, value=value, limit=use.bias_ulps + use.largest * shown + use.rms * inner + chance)


def _says_nothing_on_bias(found: Measurement, setting: Setting, use: Allowances) -> bool:
    """Whether there are too few values for a mean, or sums whose errors are shared."""
    summed = use.sums_rms * math.sqrt(setting.accumulation or 1) * 2.0 ** (setting.format.digits - 24)
    is_summed = (setting.accumulation or 1) > 1 and summed > use.bias_ulps / 4
    return setting.distinct < FEW or found.actual.count < 256 or is_summed


def _honest_inner_ulps(found: Measurement) -> float:
    return max((_inner_ulps(each) for each in found.honest), default=0.0 if found.actual.ulp_max <= 2 else 1.0)


def biases(sums: Sums | Look) -> tuple[float, float]:
    """Return the mean signed error in ulp: away from zero, and upwards."""
    count = max(sums.count, 1)
    return sums.outward_sum / count, sums.upward_sum / count


def _inner_ulps(sums: Sums) -> float:
    """Return the error beyond rounding, in ulp, that nine of ten elements do not exceed: few may have cancelled."""
    return max(percentile(sums.spread.entries(), 0.9) - 0.5, 0.0)
