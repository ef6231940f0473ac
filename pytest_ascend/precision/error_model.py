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
from dataclasses import dataclass, field
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
    """Sums over the elements of each octave, from the lowest octave to the highest without gaps; zeros are separate."""

    lowest: int
    count: Floats
    excess_max: Floats
    excess_square: Floats
    ulps_max: Floats
    ulps_square: Floats
    error_square: Floats
    error_max: Floats


def octaves(entries: Entries, form: Format, lowest: int, length: int) -> Octaves:
    """Group entries by octave; those below ``lowest`` count for it.

    Excess is the part of an error above half an ulp; all errors are absolute.
    """
    places = np.maximum(entries.exponents, lowest) - lowest
    ulp = ulp_of_octave(entries.exponents, form)
    middle = (entries.lower + entries.upper) / 2
    excess = np.maximum(entries.lower - 0.5, 0)
    ulps_max, error_max, excess_max = np.zeros(length), np.zeros(length), np.zeros(length)
    np.maximum.at(ulps_max, places, excess)
    np.maximum.at(error_max, places, entries.lower * ulp)
    np.maximum.at(excess_max, places, excess * ulp)

    def sums(weights: Floats) -> Floats:
        return np.bincount(places, weights=entries.counts * weights, minlength=length)

    count = np.bincount(places, weights=entries.counts, minlength=length)
    squares = sums(np.square(excess * ulp)), sums(np.square(excess)), sums(np.square(middle * ulp))
    return Octaves(lowest, count, excess_max, squares[0], ulps_max, squares[1], squares[2], error_max)


def joined(results: Sequence[Octaves]) -> Octaves:
    """Merge the octaves of several reference runs."""
    first = results[0]

    def over(name: str, join: Any) -> Floats:
        found: Floats = join([getattr(each, name) for each in results], axis=0)
        return found

    sums = {name: over(name, np.sum) for name in ("count", "excess_square", "ulps_square", "error_square")}
    maxima = {name: over(name, np.max) for name in ("excess_max", "ulps_max", "error_max")}
    return Octaves(lowest=first.lowest, **sums, **maxima)


def cancelled(reference_runs: Octaves) -> int:
    """Return how many of the lowest octaves have only cancelled values; they are treated as one.

    A gradient that is exactly zero is only rounding noise in float64: the octave of an element then says nothing about
    its error.
    """
    present = np.flatnonzero(reference_runs.count)
    inner = np.sqrt(reference_runs.excess_square[present] / reference_runs.count[present]).tolist()
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


@dataclass(frozen=True)
class ErrorModel:
    """The reference runs' errors, by octave from ``exponents[0]`` on, and the limits derived from them."""

    reference_runs: Octaves | None
    setting: Setting
    exponents: Ints
    use: Allowances
    #: The reference runs separately.
    results: Sequence[Octaves] = ()
    _by_window: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    @functools.cached_property
    def ulp(self) -> Floats:
        """The ulp of each octave; twice that if the expected values are rounded as well."""
        return ulp_of_octave(self.exponents, self.setting.format) * (1 if self.setting.finer else 2)

    @property
    def _sums_count(self) -> bool:
        """Whether the model of sums is a limit of its own, in addition to reference runs."""
        return self.reference_runs is None or (self.setting.accumulation or 1) > 1

    def limits(self, count: float) -> Limits:
        """Return the largest allowed error among ``count`` elements."""
        element = np.zeros(self.exponents.shape)
        sums = inner_by_model(self.setting, self.exponents, self.use, self.use.sums)
        if self.reference_runs is not None:
            element = self._inner(chance_of(count, self.use), sums)
        if self._sums_count:
            element = np.maximum(element, sums)
        if self.setting.branching:
            element = element + self.use.branch_element * self.setting.root_mean_square
        return Limits(int(self.exponents[0]), with_rounding(self.ulp, element, self.setting, self.use))

    def _inner(self, chance: float, sums: Floats) -> Floats:
        """Return the bound over the narrowest window of octaves with enough elements.

        Inner errors have one size within a window, for any values (sums with cancellation), or, for element-wise
        functions, one size in ulp.
        """
        bound, largest = np.full(self.exponents.shape, np.inf), self._inner_errors(self._seen)[0]
        for half_width in WINDOWS[WIDE:]:
            enough = np.isinf(bound) & (self._count(half_width) >= self._enough)
            if not enough.any():
                continue
            allowed = largest_of(self.setting, self.use) * sliding_max(largest, half_width) * self._unit
            if not self.setting.sampled:
                allowed = np.maximum(allowed, self._scale(half_width, chance, sums))
            bound = np.where(enough, allowed, bound)
        return bound

    def root_mean_square(self, half_width: int, count: Floats) -> Floats:
        """Return the allowed root mean square error in the window around each octave of ``count`` elements."""
        total = np.maximum(sliding_sum(count, half_width), 1)
        ulps = self.use.element_ulps if self.setting.distinct < FEW else self.use.rms_ulps
        rounding = np.sqrt(sliding_sum(count * (ulps * self.ulp) ** 2, half_width) / total)
        inner = np.zeros(self.exponents.shape)
        if self.reference_runs is not None:
            inner = self._scale(half_width, self.use.rms, self._sums)
            shared = self._scale(max(half_width, WINDOWS[WIDE]), self.use.rms, self._sums)
            inner = np.where(inner > self.use.rms * self.ulp, np.maximum(inner, shared), inner)
        if self._sums_count:
            inner = np.maximum(inner, np.sqrt(sliding_sum(count * self._sums**2, half_width) / total))
        if self.setting.branching:
            inner = inner + self.use.branch_rms * self.setting.root_mean_square
        allowed: Floats = rounding + inner
        return allowed

    @functools.cached_property
    def _sums(self) -> Floats:
        return inner_by_model(self.setting, self.exponents, self.use, self.use.sums_rms)

    @property
    def _seen(self) -> Octaves:
        if self.reference_runs is None:
            raise ValueError("there is no reference run")
        return self.reference_runs

    @functools.cached_property
    def _enough(self) -> float:
        """The number of elements that a window needs: fewer only if there are no more.

        Results of one reference share roundings, so that each of them needs that many.
        """
        wanted = self.use.independent * (len(self.results) if self.setting.sampled else 1)
        return max(1.0, min(wanted, float(self._seen.count.sum())))

    def _count(self, half_width: int) -> Floats:
        return sliding_sum(self._seen.count, half_width)

    @property
    def _is_relative(self) -> bool:
        return self.setting.accumulation == 1

    @property
    def _unit(self) -> Floats:
        return self.ulp if self._is_relative else np.ones(self.exponents.shape)

    def _inner_errors(self, seen: Octaves) -> tuple[Floats, Floats]:
        """Return maximum and sum of squares of the inner errors in each octave, in the unit of the applicable rule."""
        if self._is_relative:
            return seen.ulps_max, seen.ulps_square
        return seen.excess_max, seen.excess_square

    def _mean_squares(self, seen: Octaves, half_width: int) -> Floats:
        return sliding_sum(self._inner_errors(seen)[1], half_width) / np.maximum(sliding_sum(seen.count, half_width), 1)

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
            count = np.maximum(self._count(half_width), 1)
            squares = sliding_sum(self._inner_errors(self._seen)[1], half_width) / count
            if self.setting.sampled:  # of the worst run
                squares = np.max([self._mean_squares(each, half_width) for each in self.results], axis=0)
            shown = np.sqrt(squares) * self._unit
            shown = np.minimum(shown, sys.float_info.max)  # the squares of float64 may overflow
            careful = few(count, self.use) * np.maximum(shown, unseen(count, self.ulp))
            self._by_window[half_width] = careful, shown * _few_up_to(self.use.independent, self.use.luck)[-1]
        return self._by_window[half_width]


def largest_of(setting: Setting, use: Allowances) -> float:
    """Return the allowed multiple of the largest inner error of a reference run."""
    return use.sampled_largest if setting.sampled else use.largest


def chance_of(count: float, use: Allowances) -> float:
    """Return the likely maximum of ``count`` normal errors, in root mean squares."""
    return use.rms * (math.sqrt(2 * math.log(2 * count + 1)) + 1)


def with_rounding(ulp: Floats, inner: Any, setting: Setting, use: Allowances) -> Floats:
    """Return an inner error with the error that rounding may add."""
    if setting.sampled:  # a faithful rounding of a reference run's inner error, or a result without inner error
        alone = use.sampled_ulps if setting.approximated else use.element_ulps
        allowed = np.maximum(alone * ulp, ulp + inner)
    else:
        allowed = (use.approximation_ulps if setting.approximated else use.element_ulps) * ulp + inner
    bounded: Floats = np.minimum(allowed, sys.float_info.max)
    return bounded


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
