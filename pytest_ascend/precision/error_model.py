"""The default standard: an error model instead of a constant.

A reference run is the true value plus an *inner* error (of the steps before) plus one *rounding* to its dtype. The
rounding is known: at most half a unit in the last place (ulp), one for a faithfully rounded result. The inner error is
unknown, but a reference run for the same inputs in the same dtype shows its size, by octave of the expected value. A
device may use another order and blocking, so that its errors are different numbers of the same size;
``docs/precision.md`` derives how far they may differ.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pytest_ascend.precision.formats import ALLOWANCES, Allowances, Format, Setting
from pytest_ascend.precision.tallies import ZERO_EXPONENT, Entries

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]


#: Fewer distinct expected values share their roundings: no mean is taken over them.
FEW = 32

#: Windows of octaves around an octave; the narrowest with enough elements is used.
WINDOWS = (0, 1, 2, 4, 8, 16, 2048)
#: The narrowest window that may set the size of errors. A narrower one may hold a single row of a result, whose errors
#: have one cause and may all be small by chance.
WIDE = 3
#: From this multiple of the expected values on, errors of reference runs are remainders of larger numbers.
CANCELLED = 8


@dataclass(frozen=True, slots=True)
class Octaves:
    """Sums over each result's elements by octave, from the lowest octave to the highest without gaps.

    Arrays of (results, octaves); elements where zero is expected are left out.
    """

    lowest: int
    count: Floats
    excess_max: Floats
    excess_square: Floats
    ulps_max: Floats
    ulps_square: Floats
    error_square: Floats
    error_max: Floats


def octaves(results: Sequence[Entries], form: Format, lowest: int, length: int) -> Octaves:
    """Group the entries of results by octave; those below ``lowest`` count for it.

    Excess is the part of an error above half an ulp; all errors are absolute.
    """
    exponents, lower, upper, counts = map(np.concatenate, zip(*results, strict=True))
    places = np.maximum(exponents, lowest) - lowest
    if len(results) > 1:
        places += np.repeat(np.arange(len(results)) * length, [each.counts.size for each in results])
    shown = exponents > -ZERO_EXPONENT
    if not shown.all():
        exponents, lower, upper, counts, places = (each[shown] for each in (exponents, lower, upper, counts, places))
    ulp = ulp_of_octave(exponents, form)
    error, middle = lower * ulp, (lower + upper) / 2 * ulp
    ulps = np.maximum(lower - 0.5, 0)
    excess = ulps * ulp
    shape = len(results), length
    maxima = np.zeros((3, len(results) * length))
    for maximum, values in zip(maxima, (excess, ulps, error), strict=True):
        np.maximum.at(maximum, places, values)
    sums = [
        np.bincount(places, weights=weights, minlength=len(results) * length).reshape(shape)
        for weights in (counts, *(counts * np.square(each) for each in (excess, ulps, middle)))
    ]
    excess_max, ulps_max, error_max = (each.reshape(shape) for each in maxima)
    return Octaves(lowest, sums[0], excess_max, sums[1], ulps_max, sums[2], sums[3], error_max)


def cancelled(reference_runs: Octaves) -> int:
    """Return how many of the lowest octaves have only cancelled values; they are treated as one.

    A gradient that is exactly zero is only rounding noise in float64: the octave of an element then says nothing about
    its error.
    """
    count, square = reference_runs.count.sum(axis=0), reference_runs.excess_square.sum(axis=0)
    present = np.flatnonzero(count)
    inner = np.sqrt(square[present] / count[present]).tolist()
    last = 0
    for place, each in zip(present.tolist(), inner, strict=True):
        exponent = reference_runs.lowest + place
        if exponent >= 1000 or each < CANCELLED * 2.0 ** (exponent + 1):
            break
        last = place
    return last


def ulp_of_octave(exponents: Ints, form: Format) -> Floats:
    """Return the ulp of the numbers from 2**exponent to 2**(exponent + 1)."""
    ulps: Floats = np.ldexp(1.0, np.maximum(exponents, form.emin) - (form.digits - 1))
    return ulps


def few(count: Floats, allowances: Allowances = ALLOWANCES) -> Floats:
    """Return the factor by which the root mean square of ``count`` reference errors may understate their scale.

    sqrt(k / q), where q is the quantile of a chi-square variable of k degrees of freedom at ``luck``: its leading
    term for few elements, Wilson and Hilferty's approximation (1931) for many.
    """
    table = _few_up_to(allowances.independent, allowances.luck)
    factor: Floats = table[np.minimum(np.maximum(count, 1), allowances.independent).astype(np.intp) - 1]
    return factor


@functools.cache
def _few_up_to(most: int, luck: float) -> Floats:
    k = np.arange(1, most + 1)
    log_gamma = np.array([math.lgamma(each / 2 + 1) for each in k.tolist()])
    leading = 2 * np.exp((math.log(luck) + log_gamma) * 2 / k)
    hilferty = k * np.maximum(1 - 2 / (9 * k) - 4.7534 * np.sqrt(2 / (9 * k)), 0) ** 3
    factors: Floats = np.sqrt(k / np.maximum(np.minimum(leading, k), hilferty))
    return factors


def unseen(count: Floats | float, ulp: Floats) -> Floats:
    """Return the inner error that ``count`` reference runs may have without showing it: smaller above 8."""
    error: Floats = 0.3 * ulp * np.minimum(1, 8 / count)
    return error


def inner_by_model(setting: Setting, exponents: Ints, allowances: Allowances, factor: float) -> Floats:
    """Return the inner error of sums of the given (or a usual) length in each octave, whatever reference runs show."""
    form = setting.format
    accumulator = 2.0 ** -max(24, form.digits)
    terms = setting.accumulation or allowances.terms
    size = np.maximum(setting.scale or setting.root_mean_square, np.ldexp(1.0, np.minimum(exponents + 1, 1023)))
    bound = factor * math.sqrt(terms) * accumulator * size
    if setting.accumulation is None and form.digits < 24:
        bound = bound + factor / allowances.sums * allowances.short_roundings * form.roundoff * size
    allowed: Floats = bound if setting.finer else 2 * bound
    return allowed


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest allowed error in each octave from ``lowest`` on, and where zero is expected."""

    lowest: int
    element: Floats
    zero: float = 0.0

    def of(self, expected: Floats) -> Floats:
        """Return the largest allowed error at each of these expected values (float64)."""
        magnitude = np.abs(expected)
        exponents = (magnitude.view(np.int64) >> 52 & 0x7FF) - 1023
        places = np.clip(exponents - self.lowest, 0, self.element.size - 1)
        return np.where(magnitude == 0, self.zero, self.element[places])


class ErrorModel:
    """The reference runs' errors by octave, and the limits derived from them.

    ``reference_runs`` has None, or the runs with an element that is not zero; ``exponents`` are those of its octaves.
    """

    def __init__(self, reference_runs: Octaves | None, setting: Setting, exponents: Ints, use: Allowances) -> None:
        self.setting, self.exponents, self.use = setting, exponents, use
        #: The ulp of each octave; twice that if the expected values are rounded as well.
        self.ulp = ulp_of_octave(exponents, setting.format) * (1 if setting.finer else 2)
        #: Whether the model of sums is a limit of its own, in addition to reference runs.
        self._sums_count = reference_runs is None or (setting.accumulation or 1) > 1
        self._sums = inner_by_model(setting, exponents, use, use.sums_rms)
        #: The allowed multiple of the largest inner error of a reference run.
        self.largest = use.sampled_largest if setting.sampled else use.largest
        self.has_runs = reference_runs is not None
        self._by_window: dict[int, tuple[Floats, Floats]] = {}
        if reference_runs is None:
            return
        # The inner errors, in the unit of the applicable rule: of functions of single elements they have one size in
        # ulp, of sums (with cancellation) one size for any values.
        is_relative, seen = setting.accumulation == 1, reference_runs
        self._unit = self.ulp if is_relative else np.ones(exponents.shape)
        self._largest_of_each = seen.ulps_max if is_relative else seen.excess_max
        self._largest = self._largest_of_each.max(axis=0)
        self._counts, self._squares = seen.count, seen.ulps_square if is_relative else seen.excess_square
        self._count = self._counts.sum(axis=0)
        # A window needs so many elements: fewer only if there are no more. Results of one reference share roundings, so
        # that each of them needs that many.
        wanted = use.independent * (len(self._counts) if setting.sampled else 1)
        self._enough = max(1.0, min(wanted, float(self._count.sum())))

    def limits(self, count: float) -> Limits:
        """Return the largest allowed error among ``count`` elements."""
        element = np.zeros(self.exponents.shape)
        sums = inner_by_model(self.setting, self.exponents, self.use, self.use.sums)
        if self.has_runs:
            element = self._inner(chance_of(count, self.use), sums)
        if self._sums_count:
            element = np.maximum(element, sums)
        if self.setting.branching:
            element = element + self.use.branch_element * self.setting.root_mean_square
        rounding = self.use.approximation_ulps if self.setting.approximated else self.use.element_ulps
        allowed = rounding * self.ulp + element
        if self.setting.sampled:  # a faithful rounding of a run's inner error, or a result without inner error
            alone = self.use.sampled_ulps if self.setting.approximated else self.use.element_ulps
            allowed = np.maximum(alone * self.ulp, self.ulp + element)
        return Limits(int(self.exponents[0]), np.minimum(allowed, sys.float_info.max))

    def _inner(self, chance: float, sums: Floats) -> Floats:
        """Return the bound over the narrowest window of octaves with enough elements."""
        bound = np.full(self.exponents.shape, np.inf)
        for half_width in WINDOWS[WIDE:]:
            enough = np.isinf(bound) & (sliding_sum(self._count, half_width) >= self._enough)
            if not enough.any():
                continue
            allowed = self.largest * sliding_max(self._largest, half_width) * self._unit
            if not self.setting.sampled:
                allowed = np.maximum(allowed, self._scale(half_width, chance, sums))
            bound = np.where(enough, allowed, bound)
        return bound

    def outlying(self, half_width: int) -> npt.NDArray[np.bool_]:
        """Return whether one element has most of the squared errors of a reference run in the window of each octave."""
        found = np.zeros(self.exponents.shape, dtype=bool)
        for largest, square in zip(self._largest_of_each, self._squares, strict=True):
            found |= 2 * sliding_max(largest, half_width) ** 2 > sliding_sum(square, half_width)
        return found

    def root_mean_square(self, half_width: int, count: Floats) -> Floats:
        """Return the allowed root mean square error in the window around each octave of ``count`` elements."""
        total = np.maximum(sliding_sum(count, half_width), 1)
        ulps = self.use.element_ulps if self.setting.distinct < FEW else self.use.rms_ulps
        rounding = np.sqrt(sliding_sum(count * (ulps * self.ulp) ** 2, half_width) / total)
        inner = np.zeros(self.exponents.shape)
        if self.has_runs:
            inner = self._scale(half_width, self.use.rms, self._sums)
            shared = self._scale(max(half_width, WINDOWS[WIDE]), self.use.rms, self._sums)
            inner = np.where(inner > self.use.rms * self.ulp, np.maximum(inner, shared), inner)
        if self._sums_count:
            inner = np.maximum(inner, np.sqrt(sliding_sum(count * self._sums**2, half_width) / total))
        if self.setting.branching:
            inner = inner + self.use.branch_rms * self.setting.root_mean_square
        allowed: Floats = rounding + inner
        return allowed

    def _scale(self, half_width: int, factor: float, most: Floats) -> Floats:
        """Return ``factor`` times the root mean square inner error of the reference runs in each window.

        The correction for few elements is limited to ``most``, from the model of sums.
        """
        careful, usual = self._shown(half_width)
        if self.setting.sampled:
            known: Floats = self.use.sampled_few / _few_up_to(self.use.independent, self.use.luck)[-1] * factor * usual
            return known
        scale: Floats = np.maximum(np.minimum(factor * careful, most), factor * usual)
        return scale

    def _shown(self, half_width: int) -> tuple[Floats, Floats]:
        """Return the root mean square inner error in each window: corrected for few elements, and uncorrected."""
        if half_width not in self._by_window:
            count = np.maximum(sliding_sum(self._count, half_width), 1)
            if self.setting.sampled:  # of the worst run
                squares = np.max(
                    [
                        sliding_sum(square, half_width) / np.maximum(sliding_sum(number, half_width), 1)
                        for square, number in zip(self._squares, self._counts, strict=True)
                    ],
                    axis=0,
                )
            else:
                squares = sliding_sum(self._squares.sum(axis=0), half_width) / count
            shown = np.sqrt(squares) * self._unit
            shown = np.minimum(shown, sys.float_info.max)  # the squares of float64 may overflow
            careful = few(count, self.use) * np.maximum(shown, unseen(count, self.ulp))
            self._by_window[half_width] = careful, shown * _few_up_to(self.use.independent, self.use.luck)[-1]
        return self._by_window[half_width]


def chance_of(count: float, use: Allowances) -> float:
    """Return the likely maximum of ``count`` normal errors, in root mean squares."""
    return use.rms * (math.sqrt(2 * math.log(2 * count + 1)) + 1)


def exponents_of(entries: Entries, form: Format) -> tuple[int, int]:
    """Return the lowest and the highest octave with nonzero values; the format's lowest if all are zero.

    If only zero is expected, reference runs or the scale of the sums alone determine the limits.
    """
    present = entries.exponents[entries.exponents > -ZERO_EXPONENT]
    return (int(present.min()), int(present.max())) if present.size else (form.emin, form.emin)


def sliding_sum(values: Floats, half_width: int) -> Floats:
    """Return sums over each element and its neighbours up to ``half_width`` away."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.add.reduce(values))
    return np.convolve(values, np.ones(2 * half_width + 1))[half_width : half_width + values.size]


def sliding_max(values: Floats, half_width: int) -> Floats:
    """Return maxima over each element and its neighbours up to ``half_width`` away; values are not negative."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.maximum.reduce(values))
    padded = np.zeros(values.size + 2 * half_width)
    padded[half_width : half_width + values.size] = values
    step = padded.strides[0]
    windows = as_strided(padded, (values.size, 2 * half_width + 1), (step, step))
    largest: Floats = np.maximum.reduce(windows, axis=1)
    return largest
