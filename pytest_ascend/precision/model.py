"""The default standard: an error model instead of a constant.

A reference run is the true value plus an *inner* error (of the steps that led to it) plus one *rounding* into its
dtype. The rounding is known: at most half a unit in the last place (ulp), one where a result is only faithfully
rounded. The inner error is not known, but a reference run of the same inputs in the same dtype shows its size, octave
by octave of the expected value. A device may differ from that reference run in order and blocking, so that its errors
are other numbers of the same size; ``docs/precision.md`` derives how far they may lie apart.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pytest_ascend.precision.formats import ALLOWANCES, Allowances, Format, Setting
from pytest_ascend.precision.spread import ZERO_EXPONENT, Entries

if TYPE_CHECKING:
    from pytest_ascend.precision.quick import SmallTensor

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]


#: Fewer different expected values than this share their roundings: no mean is taken over them.
FEW = 32

#: Windows of octaves around an octave, of which the narrowest with enough elements is taken.
WINDOWS = (0, 1, 2, 4, 8, 16, 2048)
#: The narrowest window that may set the size of errors. A narrower one may hold a single row of a result, whose errors
#: have one cause and may all be small by luck.
WIDE = 3
#: From so many times the expected values on, errors of reference runs are what is left of larger numbers.
CANCELLED = 8


@dataclass(frozen=True, slots=True)
class Octaves:
    """Sums over the elements of each octave, from the lowest octave to the highest without gaps; zeros apart."""

    lowest: int
    count: Floats
    excess_max: Floats
    excess_square: Floats
    ulps_max: Floats
    ulps_square: Floats
    error_square: Floats
    error_max: Floats


def octaves(entries: Entries, form: Format, lowest: int, length: int) -> Octaves:
    """Group entries by octave, what is below ``lowest`` with it.

    Excess is what an error has above half an ulp; all errors in absolute size.
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
    """Return the octaves of several reference runs as those of one."""
    first = results[0]

    def over(name: str, join: Any) -> Floats:
        found: Floats = join([getattr(each, name) for each in results], axis=0)
        return found

    sums = {name: over(name, np.sum) for name in ("count", "excess_square", "ulps_square", "error_square")}
    maxima = {name: over(name, np.max) for name in ("excess_max", "ulps_max", "error_max")}
    return Octaves(lowest=first.lowest, **sums, **maxima)


def cancelled(reference_runs: Octaves) -> int:
    """Return how many of the lowest octaves hold nothing but what cancelled, of which the last is one, too.

    A gradient that is truly zero is no more in float64 than the noise of its own roundings: the octave that an element
    falls into says nothing of its error, so that these octaves are one.
    """
    present = np.flatnonzero(reference_runs.count)
    inner = np.sqrt(reference_runs.excess_square[present] / reference_runs.count[present]).tolist()
    last = 0
    for place, each in zip(present.tolist(), inner, strict=True):
        if not is_cancelled(each, reference_runs.lowest + place):
            break
        last = place
    return last


def is_cancelled(inner: float, exponent: int) -> bool:
    """Whether an inner error is so much larger than all values of an octave that they are what larger ones left."""
    return exponent < 1000 and inner >= CANCELLED * 2.0 ** (exponent + 1)


def ulp_of_octave(exponents: Ints, form: Format) -> Floats:
    """Return the ulp of the numbers from 2**exponent to 2**(exponent + 1)."""
    ulps: Floats = np.ldexp(1.0, np.maximum(exponents, form.emin) - (form.digits - 1))
    return ulps


def few(count: Floats, allowances: Allowances = ALLOWANCES) -> Floats:
    """Factor by which the root mean square of ``count`` errors of reference runs may understate their scale.

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
    """Return the inner error that ``count`` reference runs may have though they show none: less of more than 8."""
    error: Floats = 0.3 * ulp * np.minimum(1, 8 / count)
    return error


def inner_by_model(setting: Setting, exponents: Ints, allowances: Allowances, factor: float) -> Floats:
    """Inner error that sums of the given (or a usual) length may make in each octave, whatever reference runs show."""
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
    """The largest error allowed in each octave from ``lowest`` on, and where zero is expected."""

    lowest: int
    element: Floats
    zero: float = 0.0

    def of(self, expected: Floats) -> Floats:
        """Return the largest error allowed at each of these expected values (float64)."""
        magnitude = np.abs(expected)
        exponents = (magnitude.view(np.int64) >> 52 & 0x7FF) - 1023
        places = np.clip(exponents - self.lowest, 0, self.element.size - 1)
        return np.where(magnitude == 0, self.zero, self.element[places])


@dataclass(frozen=True)
class ErrorModel:
    """What all reference runs together show, by octave from ``exponents[0]`` on, and what is allowed from that."""

    reference_runs: Octaves | None
    setting: Setting
    exponents: Ints
    use: Allowances
    #: The reference runs apart.
    results: Sequence[Octaves] = ()
    _by_window: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    @functools.cached_property
    def ulp(self) -> Floats:
        """The ulp of each octave; twice that where the expected values have been rounded as well."""
        return ulp_of_octave(self.exponents, self.setting.format) * (1 if self.setting.finer else 2)

    @property
    def _sums_count(self) -> bool:
        """Whether the model of sums is a limit of its own, besides what reference runs show."""
        return self.reference_runs is None or (self.setting.accumulation or 1) > 1

    def limits(self, count: float) -> Limits:
        """Return the largest error allowed among ``count`` elements."""
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
        """Return the bound over the narrowest window of octaves that holds enough elements.

        Inner errors are of one size in a window, whatever the values (sums with cancellation), or, of functions of one
        element, of one size in ulp.
        """
        bound, largest = np.full(self.exponents.shape, np.inf), self._law(self._seen)[0]
        for half_width in WINDOWS[WIDE:]:
            if not np.isinf(bound).any():
                break
            allowed = largest_of(self.setting, self.use) * sliding_max(largest, half_width) * self._unit
            if not self.setting.sampled:
                allowed = np.maximum(allowed, self._scale(half_width, chance, sums))
            bound = np.where((self._count(half_width) >= self._enough) & np.isinf(bound), allowed, bound)
        return bound

    def root_mean_square(self, half_width: int, count: Floats) -> Floats:
        """Return the root mean square error allowed in the window around each octave of ``count`` elements."""
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
        """So many elements a window has to hold: fewer only where there are no more.

        Results of one reference share roundings, so that each of them has to have so many.
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

    def _law(self, seen: Octaves) -> tuple[Floats, Floats]:
        """Largest and sum of squares of the inner errors in each octave, in the unit of the rule that holds."""
        if self._is_relative:
            return seen.ulps_max, seen.ulps_square
        return seen.excess_max, seen.excess_square

    def _mean_squares(self, seen: Octaves, half_width: int) -> Floats:
        return sliding_sum(self._law(seen)[1], half_width) / np.maximum(sliding_sum(seen.count, half_width), 1)

    def _scale(self, half_width: int, factor: float, most: Floats) -> Floats:
        """Return ``factor`` times the root mean square inner error that reference runs show in each window.

        The correction for few elements ends at ``most``, which the model of sums sets.
        """
        careful, usual = self._shown(half_width)
        if self.setting.sampled:
            known: Floats = self.use.sampled_few / _few_up_to(self.use.independent, self.use.luck)[-1] * factor * usual
            return known
        scale: Floats = np.maximum(np.minimum(factor * careful, most), factor * usual)
        return scale

    def _shown(self, half_width: int) -> tuple[Floats, Floats]:
        """Root mean square inner error in each window: corrected for how few elements there are, and as of many."""
        if half_width not in self._by_window:
            count = np.maximum(self._count(half_width), 1)
            squares = sliding_sum(self._law(self._seen)[1], half_width) / count
            if self.setting.sampled:  # of the worst of them
                squares = np.max([self._mean_squares(each, half_width) for each in self.results], axis=0)
            shown = np.sqrt(squares) * self._unit
            shown = np.minimum(shown, sys.float_info.max)  # the squares of float64 may overflow
            careful = few(count, self.use) * np.maximum(shown, unseen(count, self.ulp))
            self._by_window[half_width] = careful, shown * _few_up_to(self.use.independent, self.use.luck)[-1]
        return self._by_window[half_width]


def limits_of_few(found: SmallTensor, shown: Floats, setting: Setting, use: Allowances) -> Floats:
    """Return what :meth:`ErrorModel.limits` allows each element, where one window holds all of them.

    ``shown`` are these in ulp (results, elements).
    """
    own = 1 / found.inverse
    ulp = own if setting.finer else 2 * own
    excess = np.maximum(shown - 0.5, 0)
    unit: Floats | float = ulp if setting.accumulation == 1 else 1.0
    excess = excess if setting.accumulation == 1 else excess * own
    count = excess.size
    element = largest_of(setting, use) * float(np.maximum.reduce(excess, axis=None)) * unit
    summed = (setting.accumulation or 1) > 1
    if summed or not setting.sampled:
        sums = inner_by_model(setting, np.frexp(found.magnitude)[1] - 1, use, use.sums)
    if not setting.sampled:
        shown_by_all = unit * math.sqrt(min(float(np.square(excess).sum()) / count, sys.float_info.max))
        table, chance = _few_up_to(use.independent, use.luck), chance_of(found.error.size, use)
        careful = table[count - 1] * np.maximum(shown_by_all, unseen(count, ulp))
        usual = np.maximum(np.minimum(chance * careful, sums), chance * table[-1] * shown_by_all)
        element = np.maximum(element, usual)
    if summed:
        element = np.maximum(element, sums)
    if setting.branching:
        element = element + use.branch_element * setting.root_mean_square
    return with_rounding(ulp, element, setting, use)


def times_shown(setting: Setting, use: Allowances) -> float:
    """Return how many times the root mean square of many inner errors of reference runs is allowed at least."""
    correction = use.sampled_few if setting.sampled else float(_few_up_to(use.independent, use.luck)[-1])
    return correction * use.rms


def largest_of(setting: Setting, use: Allowances) -> float:
    """Return how many times the largest inner error of a reference run is allowed."""
    return use.sampled_largest if setting.sampled else use.largest


def chance_of(count: float, use: Allowances) -> float:
    """Return what the largest of ``count`` normal errors may reach, in root mean squares."""
    return use.rms * (math.sqrt(2 * math.log(2 * count + 1)) + 1)


def with_rounding(ulp: Floats, inner: Any, setting: Setting, use: Allowances) -> Floats:
    """Return the error that rounding may add to an inner one."""
    if setting.sampled:  # a faithful rounding of an inner error of a reference run, or what needs no inner one
        alone = use.sampled_ulps if setting.approximated else use.element_ulps
        allowed = np.maximum(alone * ulp, ulp + inner)
    else:
        allowed = (use.approximation_ulps if setting.approximated else use.element_ulps) * ulp + inner
    bounded: Floats = np.minimum(allowed, sys.float_info.max)
    return bounded


def exponents_of(entries: Entries, form: Format) -> tuple[int, int]:
    """Return the lowest and the highest octave that holds anything but zeros; the format's lowest where all are zero.

    Where only zero is expected, nothing but reference runs or the scale of the sums says what may come instead.
    """
    present = entries.exponents[entries.exponents > -ZERO_EXPONENT]
    return (int(present.min()), int(present.max())) if present.size else (form.emin, form.emin)


def sliding_sum(values: Floats, half_width: int) -> Floats:
    """Sum over each place and its neighbours up to ``half_width`` away."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.add.reduce(values))
    return np.convolve(values, np.ones(2 * half_width + 1))[half_width : half_width + values.size]


def sliding_max(values: Floats, half_width: int) -> Floats:
    """Maximum over each place and its neighbours up to ``half_width`` away; of values that are not negative."""
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
