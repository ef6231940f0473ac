"""The default standard: an error model instead of a constant.

A reference run is the true value plus an *inner* error (of earlier steps) plus one *rounding* to its dtype. The
rounding is known: at most half a unit in the last place (ulp), one for a faithfully rounded result. The inner error is
unknown, but a reference run for the same inputs in the same dtype shows its size, by octave of the expected value. A
device may use another order and blocking, so that its errors are different numbers of the same size;
``docs/precision.md`` derives how far they may differ.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pytest_ascend.precision.errors import FAR, Measurement
from pytest_ascend.precision.formats import ALLOWANCES, Allowances, Floats, Format, Ints
from pytest_ascend.precision.settings import Setting
from pytest_ascend.precision.tallies import ZERO_EXPONENT, Entries, Sums, percentile
from pytest_ascend.records.verdict import Rule

#: Fewer distinct expected values share their roundings, so that means are not judged.
FEW = 32

#: Numbers of octaves on each side of a window; the narrowest window with enough elements is used.
WINDOWS = (0, 1, 2, 4, 8, 16, 2048)
#: The narrowest window from which the size of errors is taken. A narrower one may hold a single row of a result, whose
#: errors have one cause and may all be small by chance.
WIDE = 3
#: From this multiple of the expected values on, reference runs' errors are remainders of cancelled larger numbers.
CANCELLED = 8


@dataclass(frozen=True, slots=True)
class Octaves:
    """Sums over each result's elements by octave, from the lowest octave to the highest without gaps.

    Arrays of shape (results, octaves); elements with an expected value of zero are left out.
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
    """Group the entries of results by octave; those below ``lowest`` are counted there.

    The excess is the part of an error above half an ulp; all errors are absolute.
    """
    exponents, lower, upper, counts = map(np.concatenate, zip(*results, strict=True))
    places = np.maximum(exponents, lowest) - lowest
    if len(results) > 1:
        places += np.repeat(np.arange(len(results)) * length, [each.counts.size for each in results])
    shown = exponents > -ZERO_EXPONENT
    if not shown.all():
        exponents, lower, upper, counts, places = (each[shown] for each in (exponents, lower, upper, counts, places))
    ulp = form.ulp_of_octave(exponents)
    error, middle = lower * ulp, (lower + upper) / 2 * ulp
    ulps = np.maximum(lower - 0.5, 0)
    excess = ulps * ulp
    shape = len(results), length
    maxima = np.zeros((3, len(results) * length))
    for maximum, values in zip(maxima, (excess, ulps, error), strict=True):
        np.maximum.at(maximum, places, values)
    weights = [counts, *(counts * np.square(each) for each in (excess, ulps, middle))]
    sums = [np.bincount(places, each, minlength=len(results) * length).reshape(shape) for each in weights]
    excess_max, ulps_max, error_max = (each.reshape(shape) for each in maxima)
    return Octaves(lowest, sums[0], excess_max, sums[1], ulps_max, sums[2], sums[3], error_max)


def cancelled(reference_runs: Octaves) -> int:
    """Return how many of the lowest octaves contain only cancellation noise; they are merged.

    An exactly zero gradient is only rounding noise in float64: an element's octave then says nothing about its error.
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


def few(count: Floats, allowances: Allowances = ALLOWANCES) -> Floats:
    """Return the factor by which the root mean square of ``count`` reference errors may understate their scale.

    sqrt(k / q), where q is the quantile of a chi-square variable with k degrees of freedom at ``luck``: its leading
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


def inner_by_model(setting: Setting, exponents: Ints, allowances: Allowances, factor: float) -> Floats:
    """Return the inner error of sums of the given (or a usual) length in each octave, independent of reference runs."""
    form = setting.format
    accumulator = 2.0 ** -max(24, form.digits)
    terms = setting.request.accumulation or allowances.terms
    size = np.maximum(setting.request.scale or setting.root_mean_square, np.ldexp(1.0, np.minimum(exponents + 1, 1023)))
    bound = factor * math.sqrt(terms) * accumulator * size
    if setting.request.accumulation is None and form.digits < 24:
        bound = bound + factor / allowances.sums * allowances.short_roundings * 2.0**-form.digits * size
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

    ``reference_runs`` is None or holds the runs with a nonzero element; ``exponents`` are those of its octaves.
    """

    def __init__(self, reference_runs: Octaves | None, setting: Setting, exponents: Ints, allow: Allowances) -> None:
        self.setting, self.exponents, self.allow = setting, exponents, allow
        #: The ulp of each octave; twice that if the expected values are rounded as well.
        self.ulp = setting.format.ulp_of_octave(exponents) * (1 if setting.finer else 2)
        #: Whether the model of sums is an additional limit beside reference runs.
        self._sums_count = reference_runs is None or (setting.request.accumulation or 1) > 1
        self._sums = inner_by_model(setting, exponents, allow, allow.sums_rms)
        #: The allowed multiple of the largest inner error of a reference run.
        self.largest = allow.sampled_largest if setting.request.sampled else allow.largest
        self.has_runs = reference_runs is not None
        self._by_window: dict[int, tuple[Floats, Floats]] = {}
        if reference_runs is None:
            return
        # The inner errors, in the unit of the applicable rule: for functions of single elements their size is constant
        # in ulp, for sums (with cancellation) it is the same for all values.
        is_relative, seen = setting.request.accumulation == 1, reference_runs
        self._unit = self.ulp if is_relative else np.ones(exponents.shape)
        self._largest_of_each = seen.ulps_max if is_relative else seen.excess_max
        self._largest = self._largest_of_each.max(axis=0)
        self._counts, self._squares = seen.count, seen.ulps_square if is_relative else seen.excess_square
        self._count = self._counts.sum(axis=0)
        # A window needs this many elements; fewer only if there are no more. Results of one reference share roundings,
        # so each of them needs that many.
        wanted = allow.independent * (len(self._counts) if setting.request.sampled else 1)
        self._enough = max(1.0, min(wanted, float(self._count.sum())))

    def limits(self, count: float) -> Limits:
        """Return the largest allowed error among ``count`` elements."""
        element = np.zeros(self.exponents.shape)
        sums = inner_by_model(self.setting, self.exponents, self.allow, self.allow.sums)
        if self.has_runs:
            # The bound over the narrowest window of octaves with enough elements.
            chance, element = chance_of(count, self.allow), np.full(self.exponents.shape, np.inf)
            for half_width in WINDOWS[WIDE:]:
                enough = np.isinf(element) & (sliding_sum(self._count, half_width) >= self._enough)
                if not enough.any():
                    continue
                largest = self.largest * sliding_max(self._largest, half_width) * self._unit
                if not self.setting.request.sampled:
                    largest = np.maximum(largest, self._scale(half_width, chance, sums))
                element = np.where(enough, largest, element)
        if self._sums_count:
            element = np.maximum(element, sums)
        if self.setting.request.branching:
            element = element + self.allow.branch_element * self.setting.root_mean_square
        rounding = self.allow.approximation_ulps if self.setting.approximated else self.allow.element_ulps
        allowed = rounding * self.ulp + element
        if self.setting.request.sampled:  # a faithful rounding of a run's inner error, or a result without inner error
            alone = self.allow.sampled_ulps if self.setting.approximated else self.allow.element_ulps
            allowed = np.maximum(alone * self.ulp, self.ulp + element)
        return Limits(int(self.exponents[0]), np.minimum(allowed, sys.float_info.max))

    def outlying(self, half_width: int) -> npt.NDArray[np.bool_]:
        """Return, for each window, whether one element causes most of a reference run's squared errors."""
        found = np.zeros(self.exponents.shape, dtype=bool)
        for largest, square in zip(self._largest_of_each, self._squares, strict=True):
            found |= 2 * sliding_max(largest, half_width) ** 2 > sliding_sum(square, half_width)
        return found

    def root_mean_square(self, half_width: int, count: Floats) -> Floats:
        """Return the allowed RMS error in the window around each octave, for ``count`` elements by octave."""
        total = np.maximum(sliding_sum(count, half_width), 1)
        ulps = self.allow.element_ulps if self.setting.distinct < FEW else self.allow.rms_ulps
        rounding = np.sqrt(sliding_sum(count * (ulps * self.ulp) ** 2, half_width) / total)
        inner = np.zeros(self.exponents.shape)
        if self.has_runs:
            inner = self._scale(half_width, self.allow.rms, self._sums)
            shared = self._scale(max(half_width, WINDOWS[WIDE]), self.allow.rms, self._sums)
            inner = np.where(inner > self.allow.rms * self.ulp, np.maximum(inner, shared), inner)
        if self._sums_count:
            inner = np.maximum(inner, np.sqrt(sliding_sum(count * self._sums**2, half_width) / total))
        if self.setting.request.branching:
            inner = inner + self.allow.branch_rms * self.setting.root_mean_square
        allowed: Floats = rounding + inner
        return allowed

    def _scale(self, half_width: int, factor: float, most: Floats) -> Floats:
        """Return ``factor`` times the RMS inner error of the reference runs in each window.

        The correction for few elements is limited to ``most``, given by the model of sums.
        """
        if half_width not in self._by_window:
            count = np.maximum(sliding_sum(self._count, half_width), 1)
            # From the worst run, if more runs can be computed.
            apart = zip(self._squares, self._counts, strict=True)
            runs = apart if self.setting.request.sampled else [(self._squares.sum(axis=0), self._count)]
            squares = [sliding_sum(x, half_width) / np.maximum(sliding_sum(n, half_width), 1) for x, n in runs]
            shown = np.sqrt(np.max(squares, axis=0)) * self._unit
            shown = np.minimum(shown, sys.float_info.max)  # the squares of float64 may overflow
            unseen = 0.3 * self.ulp * np.minimum(1, 8 / count)  # an error that so few may not show
            corrected = few(count, self.allow) * np.maximum(shown, unseen)
            self._by_window[half_width] = corrected, shown * _few_up_to(self.allow.independent, self.allow.luck)[-1]
        corrected, usual = self._by_window[half_width]
        if self.setting.request.sampled:
            share = self.allow.sampled_few / _few_up_to(self.allow.independent, self.allow.luck)[-1]
            known: Floats = share * factor * usual
            return known
        scale: Floats = np.maximum(np.minimum(factor * corrected, most), factor * usual)
        return scale


def chance_of(count: float, allow: Allowances) -> float:
    """Return the likely maximum of ``count`` normal errors, in units of their root mean square."""
    return allow.rms * (math.sqrt(2 * math.log(2 * count + 1)) + 1)


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
    """Return maxima over each element and its neighbours up to ``half_width`` away, for nonnegative values."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.maximum.reduce(values))
    padded = np.zeros(values.size + 2 * half_width)
    padded[half_width : half_width + values.size] = values
    step = padded.strides[0]  # numpy's sliding_window_view takes twice as long, many times per judgement
    windows = as_strided(padded, (values.size, 2 * half_width + 1), (step, step))
    largest: Floats = np.maximum.reduce(windows, axis=1)
    return largest


#: Least elements for a meaningful mean signed error; an octave below that of any value.
BIASED_FROM, LOWEST = 256, np.array([-4 * ZERO_EXPONENT])


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of a rule: the value measured, and the limit."""

    rule: str
    value: float
    limit: float
    #: Returns the error allowed at given expected values, if the rule judges elements.
    allowed: Callable[[Floats], Floats] | None = None
    #: The number of the block that the rule judges.
    block: int | None = None

    @property
    def used(self) -> float:
        """Return the value divided by the limit: above 1 if the rule is broken."""
        if math.isnan(self.value) or math.isnan(self.limit) or self.value == math.inf:
            return math.inf  # unknown, or not finite: no reason to accept
        if self.limit == 0:
            return math.inf if self.value > 0 else 0.0
        return self.value / self.limit

    @property
    def is_broken(self) -> bool:
        """Return whether the result is to be rejected."""
        return self.used > 1


def judge_by_model(found: Measurement, setting: Setting, allow: Allowances = ALLOWANCES) -> Finding:
    """Return the rule that the device's errors come closest to breaking; it is broken if they exceed its limit."""
    if not all(each.count for each in found.reference_runs):
        found = replace(found, reference_runs=[each for each in found.reference_runs if each.count])
    rounding = _rounding(found.actual, setting, allow)
    if not rounding.is_broken:
        return rounding
    few = _few_elements(found, setting, allow)
    if not few.is_broken:
        return few
    entries = found.actual.spread.entries()
    run_entries = [each.spread.entries() for each in found.reference_runs]
    lowest, highest = exponents_of(entries, setting.format)
    # Where the device overflows, reference runs may have larger numbers than any of its own.
    highest = max([highest, *(exponents_of(each, setting.format)[1] for each in run_entries)])
    present = [each for each in run_entries if (each.exponents > -ZERO_EXPONENT).any()]  # the others have only zeros
    reference_runs = octaves(present, setting.format, lowest, highest - lowest + 1) if present else None
    if reference_runs is not None and setting.request.accumulation != 1 and (merged := cancelled(reference_runs)):
        lowest += merged
        reference_runs = octaves(present, setting.format, lowest, highest - lowest + 1)
    device = octaves([entries], setting.format, lowest, highest - lowest + 1)
    model = ErrorModel(reference_runs, setting, np.arange(lowest, highest + 1), allow)
    allowed = _with_zero(model.limits(found.actual.count), model, run_entries, device)
    (error_max,) = device.error_max
    worst = int((error_max / allowed.element).argmax())
    value, limit = float(error_max[worst]), float(allowed.element[worst])
    findings = (
        Finding(rule=Rule.ZERO, value=_zero_errors(entries, setting)[0], limit=allowed.zero, allowed=allowed.of),
        Finding(rule=Rule.ELEMENT, value=value, limit=limit, allowed=allowed.of),
        _root_mean_square(device, model),
        _blocks(found, setting, allow),
        _bias(found, setting, allow),
    )
    return max(findings, key=lambda each: (each.used > 1 and each.allowed is not None, each.used))


def judge_quickly(found: Sums, setting: Setting, allow: Allowances, *, has_reference_runs: bool) -> Finding | None:
    """Return the rule by which a quick look accepts a result (equality, rounding or sums), or None.

    ``has_reference_runs``: reference runs decide on errors that rounding does not explain.
    """
    is_near, few = found.ulp_max <= FAR, found.count < FEW
    if is_near and not (rounding := _rounding(found, setting, allow)).is_broken:
        return rounding
    if has_reference_runs or (is_near and not few):
        return None
    limit = float(inner_by_model(setting, LOWEST, allow, allow.sums if few else allow.sums_rms)[0])
    return Finding(rule=Rule.ELEMENT, value=found.abs_max, limit=limit) if found.abs_max <= limit else None


def _rounding(sums: Sums, setting: Setting, allow: Allowances) -> Finding:
    """Judge the errors as if only rounding caused them, which settles most results quickly."""
    count = max(sums.count, 1)
    element = Finding(rule=Rule.LARGEST_ULPS, value=sums.ulp_max, limit=allow.element_ulps)
    if setting.distinct < FEW:
        return element
    bias = max(map(abs, biases(sums)))
    root = math.sqrt(sums.ulp_square_sum / count)
    return max(
        element,
        Finding(rule=Rule.RMS_ULPS, value=root, limit=allow.rms_ulps),
        Finding(rule=Rule.BIAS, value=bias, limit=allow.bias_ulps),
        key=lambda each: each.used,
    )


def _few_elements(found: Measurement, setting: Setting, allow: Allowances) -> Finding:
    """Accept a result that is certainly within the limits of every rule: the second shortcut.

    Its errors are below what the model of sums allows in the lowest octave (for one element if there are few, whose
    mean is not judged); or, for few elements, below what the errors of reference runs at the same elements allow.
    """
    sums, few = found.actual, found.actual.count < FEW
    if not found.reference_runs or (setting.request.accumulation or 1) > 1:
        factor = allow.sums if few else allow.sums_rms
        limit = float(inner_by_model(setting, LOWEST, allow, factor)[0])
        if sums.abs_max <= limit and (few or _says_nothing_on_bias(found.actual.count, setting, allow)):
            return Finding(rule=Rule.ELEMENT, value=sums.abs_max, limit=limit)
    elif few and all(each.count == sums.count for each in found.reference_runs):
        # The errors in ulp compared with those of reference runs at the same elements.
        ulps, shown = sums.spread.entries().lower, [each.spread.entries().lower for each in found.reference_runs]
        worst, largest = np.max(shown, axis=0), allow.sampled_largest if setting.request.sampled else allow.largest
        allowed = allow.element_ulps + largest * np.maximum(worst - 0.5, 0)
        place = int((ulps / allowed).argmax())
        value = float(ulps[place]) if worst[place] < math.inf else math.inf
        return Finding(rule=Rule.ELEMENT_ULPS, value=value, limit=float(allowed[place]))
    return Finding(rule=Rule.ELEMENT, value=sums.abs_max, limit=0.0)


def _zero_errors(entries: Entries, setting: Setting) -> tuple[float, float]:
    """Return a lower and an upper bound of the largest error at elements with an expected zero."""
    zeros, tiniest = entries.exponents == -ZERO_EXPONENT, setting.format.tiniest
    lower, upper = (float(each[zeros].max(initial=0.0)) * tiniest for each in (entries.lower, entries.upper))
    return lower, upper


def _with_zero(allowed: Limits, model: ErrorModel, reference_runs: Sequence[Entries], device: Octaves) -> Limits:
    """Allow the errors of reference runs where zero is expected, and there also those allowed for the smallest values.

    The smallest values are the lowest octave for few elements, or the lowest 64 elements for many: a value cut off at
    zero (by a ReLU, a mask) may have the error of values that were not.
    """
    setting, allow = model.setting, model.allow
    shown = max((_zero_errors(each, setting)[1] for each in reference_runs), default=0.0)
    is_many = device.count.sum() >= allow.independent
    reach = int(np.searchsorted(np.cumsum(device.count[0]), allow.independent)) + 1 if is_many else 1
    zero = max(model.largest * shown, float(allowed.element[:reach].max()), setting.format.tiniest)
    return Limits(allowed.lowest, allowed.element, zero)


def _root_mean_square(device: Octaves, model: ErrorModel) -> Finding:
    """Compare in the narrowest window around each octave that has enough elements for a meaningful mean.

    A single element may cause most of the error, such as the sign that an optimizer's first step takes from a gradient
    close to zero; then the device's largest error is left out of the mean, since it is judged by itself.
    """
    worst = Finding(rule=Rule.RMS, value=0.0, limit=1.0)
    (total,), (error_square,), (error_max,) = device.count, device.error_square, device.error_max
    pending = total > 0
    if total.sum() < model.allow.independent:
        return worst
    for half_width in WINDOWS:
        count = np.maximum(sliding_sum(total, half_width), 1)
        enough = pending & (count >= model.allow.independent)
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


def _blocks(found: Measurement, setting: Setting, allow: Allowances) -> Finding:
    """Compare each block's root mean square error with the largest of reference runs at its magnitude."""
    nothing = Finding(rule=Rule.BLOCK, value=0.0, limit=math.inf)
    if not found.reference_runs or setting.distinct < FEW or not found.actual.blocks or setting.request.branching:
        return nothing
    device, ulp_square = map(np.concatenate, zip(*found.actual.blocks, strict=True))
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
    limit = allow.rms_ulps * np.sqrt(ulp_square) + allow.block * shown[octave]
    if (setting.request.accumulation or 1) > 1:
        exponents = np.frexp(np.sqrt(ulp_square))[1] + setting.format.digits - 2
        limit += inner_by_model(setting, exponents, allow, allow.sums_rms)
    place = int((device / limit**2).argmax())
    return replace(nothing, value=math.sqrt(device[place]), limit=float(limit[place]), block=int(known[place]))


def _bias(found: Measurement, setting: Setting, allow: Allowances) -> Finding:
    """Reject many results that are rounded in one direction, even if their errors are small.

    Not judged where inner errors are as large as roundings: an entire row of results may share one error.
    """
    unjudged = Finding(rule=Rule.BIAS, value=max(map(abs, biases(found.actual))), limit=math.inf)
    if _says_nothing_on_bias(found.actual.count, setting, allow):
        return unjudged
    without = 0.0 if found.actual.ulp_max <= 2 else 1.0
    # The 90th percentile of the error beyond rounding, in ulp: a few elements may have cancelled.
    beyond = [max(percentile(each.spread.entries(), 0.9) - 0.5, 0.0) for each in found.reference_runs]
    inner = max(beyond, default=without)
    if inner > 0.5:
        return unjudged
    shown = max((max(map(abs, biases(each))) for each in found.reference_runs), default=0.0)
    chance = 6 * 0.3 / math.sqrt(found.actual.count)
    return replace(unjudged, limit=allow.bias_ulps + allow.largest * shown + allow.rms * inner + chance)


def _says_nothing_on_bias(count: int, setting: Setting, allow: Allowances) -> bool:
    """Return whether there are too few values for a mean, or sums of a known length may share a rounding error."""
    if setting.distinct < FEW or count < BIASED_FROM:
        return True
    terms = setting.request.accumulation or 1
    return terms > 1 and allow.sums_rms * math.sqrt(terms) * 2.0 ** (setting.format.digits - 24) > allow.bias_ulps / 4


def biases(sums: Sums) -> tuple[float, float]:
    """Return the mean signed errors in ulp: away from zero, and upwards."""
    count = max(sums.count, 1)
    return sums.outward_sum / count, sums.upward_sum / count
