"""The default standard: an error model instead of a constant.

An honest result is the true value plus an *inner* error (of the steps that led to it) plus one *rounding* into its
dtype. The rounding is known: at most half a unit in the last place (ulp), one where a result is only faithfully
rounded. The inner error is not known, but an honest result of the same inputs in the same dtype shows its size, octave
by octave of the expected value. A device may differ from that honest result in order and blocking, so that its errors
are other numbers of the same size; ``docs/precision.md`` derives how far they may lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import ZERO_EXPONENT, Entries

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowances:
    """The constants of the error model. All but the first three are plain factors; see ``docs/precision.md``.

    ``element_ulps``: error of one element that rounding alone explains: just under four times the half ulp of an exact
    rounding. ``rms_ulps``: the same for the root mean square of many elements (exact rounding 0.29, truncation 0.58).
    ``bias_ulps``: mean signed error that many rounded elements may share (exact rounding: 0; truncation: 0.5).
    """

    element_ulps: float = 1.9
    rms_ulps: float = 0.75
    bias_ulps: float = 0.2
    #: Times the largest inner error that an honest result shows.
    largest: float = 3.0
    #: Times the root mean square of the inner errors, before the correction for few elements.
    rms: float = 2.0
    #: Chance that so few elements understate the honest errors, for the correction for few elements.
    luck: float = 1e-6
    #: More elements than this count as no more than this, since errors of one tensor are not independent.
    independent: int = 64
    #: Inner error of one sum of ``n`` terms of size ``s``: this, times unit roundoff, times sqrt(n), times s.
    sums: float = 4.0
    #: The same as root mean square.
    sums_rms: float = 0.5
    #: Terms in a sum, where nobody says how many.
    terms: int = 1024
    #: Roundings of 16-bit and shorter formats inside an operator or model, where nobody says.
    short_roundings: float = 4.0


ALLOWANCES = Allowances()

#: Windows of octaves around an octave from which its honest errors are taken.
WINDOWS = (0, 1, 2, 4, 8, 16, 512)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is known of a result besides its values.

    ``accumulation`` is the number of terms in each sum (None: not known); ``scale`` the size of those terms' sum of
    magnitudes (None: taken from the expected values); ``finer`` whether the expected values are of a finer format than
    the judged one; ``distinct`` how many different expected values a sample holds.
    """

    format: Format
    root_mean_square: float
    accumulation: int | None = None
    scale: float | None = None
    finer: bool = True
    distinct: int = 1024


@dataclass(frozen=True, slots=True)
class Octaves:
    """Sums over the elements of each octave, from the lowest octave to the highest without gaps; zeros apart."""

    lowest: int
    count: Floats
    excess_max: Floats
    excess_square: Floats
    error_square: Floats
    error_max: Floats

    def window(self, half_width: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Give count, largest excess, excess and error squares over each octave and its neighbours."""
        sums = [sliding_sum(each, half_width) for each in (self.count, self.excess_square, self.error_square)]
        return sums[0], sliding_max(self.excess_max, half_width), sums[1], sums[2]


def octaves(entries: Entries, form: Format, lowest: int, length: int) -> Octaves:
    """Group entries by octave. Excess is what an error has above half an ulp; all errors in absolute size."""
    places = np.maximum(entries.exponents, lowest) - lowest
    ulp = ulp_of_octave(np.maximum(entries.exponents, lowest), form)
    middle = (entries.lower + entries.upper) / 2
    excess = np.maximum(entries.upper - 0.5, 0) * ulp
    excess_max, error_max = np.zeros(length), np.zeros(length)
    np.maximum.at(excess_max, places, excess)
    np.maximum.at(error_max, places, entries.lower * ulp)
    sums = [
        np.bincount(places, weights=weights, minlength=length)
        for weights in (
            entries.counts,
            entries.counts * (np.maximum(middle - 0.5, 0) * ulp) ** 2,
            entries.counts * (middle * ulp) ** 2,
        )
    ]
    return Octaves(lowest, sums[0], excess_max, sums[1], sums[2], error_max)


def ulp_of_octave(exponents: Ints, form: Format) -> Floats:
    """Give the ulp of the numbers from 2**exponent to 2**(exponent + 1)."""
    ulps: Floats = np.ldexp(1.0, np.maximum(exponents, form.emin) - (form.digits - 1))
    return ulps


def few(count: Floats, allowances: Allowances = ALLOWANCES) -> Floats:
    """Factor by which the root mean square of ``count`` honest errors may understate their scale.

    sqrt(k / q), where q is the quantile of a chi-square variable of k degrees of freedom at ``luck``: its leading
    term for few elements, Wilson and Hilferty's approximation (1931) for many.
    """
    k = np.clip(count, 1, allowances.independent)
    log_gamma = np.array([math.lgamma(each / 2 + 1) for each in k.tolist()])
    leading = 2 * np.exp((math.log(allowances.luck) + log_gamma) * 2 / k)
    hilferty = k * np.maximum(1 - 2 / (9 * k) - 4.7534 * np.sqrt(2 / (9 * k)), 0) ** 3
    factor: Floats = np.sqrt(k / np.maximum(np.minimum(leading, k), hilferty))
    return factor


def inner_by_model(setting: Setting, exponents: Ints, allowances: Allowances, factor: float) -> Floats:
    """Inner error that sums of the given (or a usual) length may make in each octave, whatever honest results show."""
    form = setting.format
    accumulator = 2.0 ** -max(24, form.digits)
    terms = setting.accumulation or allowances.terms
    size = np.maximum(setting.scale or setting.root_mean_square, np.ldexp(1.0, exponents + 1))
    bound = factor * math.sqrt(terms) * accumulator * size
    if setting.accumulation is None and form.digits < 24:
        bound = bound + factor / allowances.sums * allowances.short_roundings * form.roundoff * size
    allowed: Floats = bound if setting.finer else 2 * bound
    return allowed


@dataclass(frozen=True, slots=True)
class Limits:
    """What is allowed in each octave: the largest error, and the root mean square over the octaves around."""

    lowest: int
    element: Floats
    rms: Floats
    zero: float

    def of(self, expected: Floats) -> Floats:
        """Give the largest error allowed at each of these expected values (float64)."""
        magnitude = np.abs(expected)
        exponents = (magnitude.view(np.int64) >> 52 & 0x7FF) - 1023
        places = np.clip(exponents - self.lowest, 0, self.element.size - 1)
        return np.where(magnitude == 0, self.zero, self.element[places])


def limits(honest: Sequence[Octaves], setting: Setting, exponents: Ints, count: Floats, use: Allowances) -> Limits:
    """Work out the limits from what honest results show, or from the model of sums alone where there are none."""
    form = setting.format
    ulp = ulp_of_octave(exponents, form)
    rounding = use.element_ulps * ulp * (1 if setting.finer else 2)
    few_distinct = setting.distinct < 32
    rms_rounding = (use.element_ulps if few_distinct else use.rms_ulps) * ulp * (1 if setting.finer else 2)
    cap = inner_by_model(setting, exponents, use, use.sums)
    element, rms = cap, cap * (use.sums_rms / use.sums)
    if honest:
        element, rms = _inner_by_honest(honest, cap, ulp, float(count.sum()), use)
    if honest and (setting.accumulation or 1) > 1:
        element = np.maximum(element, cap)
        rms = np.maximum(rms, cap * (use.sums_rms / use.sums))
    return Limits(int(exponents[0]), rounding + element, rms_rounding + rms, 0.0)


def _inner_by_honest(
    honest: Sequence[Octaves], cap: Floats, ulp: Floats, total: float, use: Allowances
) -> tuple[Floats, Floats]:
    """The smallest bound over all windows of octaves: each is one, if the errors in it are of one size."""
    chance = math.sqrt(2 * math.log(2 * total + 1)) + 1
    element = np.full(ulp.shape, np.inf)
    rms = np.full(ulp.shape, np.inf)
    for half_width in WINDOWS:
        windows = [each.window(half_width) for each in honest]
        count = np.maximum(sum(each[0] for each in windows), 1e-300)
        largest = np.max([each[1] for each in windows], axis=0)
        excess = np.sqrt(sum(each[2] for each in windows) / count)
        unseen = 0.3 * ulp * np.minimum(1, 8 / np.maximum(count, 1))
        scale = np.minimum(few(count, use) * np.maximum(excess, unseen), cap)
        scale = np.maximum(scale, few(np.full(1, use.independent), use) * excess)
        usable = count >= 1
        bound = np.maximum(use.largest * largest, use.rms * chance * scale)
        element = np.where(usable, np.minimum(element, bound), element)
        rms = np.where(usable, np.minimum(rms, use.rms * scale), rms)
        if half_width >= ulp.size:
            break
    return element, rms


def _windows(values: Floats, half_width: int) -> Floats:
    width = min(half_width, values.size)
    return np.lib.stride_tricks.sliding_window_view(np.pad(values, width), 2 * width + 1)


def sliding_sum(values: Floats, half_width: int) -> Floats:
    """Sum over each place and its neighbours up to ``half_width`` away."""
    summed: Floats = values if half_width == 0 else _windows(values, half_width).sum(axis=1)
    return summed


def sliding_max(values: Floats, half_width: int) -> Floats:
    """Maximum over each place and its neighbours up to ``half_width`` away."""
    largest: Floats = values if half_width == 0 else _windows(values, half_width).max(axis=1)
    return largest


def exponents_of(entries: Entries) -> tuple[int, int]:
    """Give the lowest and the highest octave that holds anything but zeros; (0, 0) where all are zero."""
    present = entries.exponents[entries.exponents > -ZERO_EXPONENT]
    return (int(present.min()), int(present.max())) if present.size else (0, 0)
