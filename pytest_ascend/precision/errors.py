"""The errors of a result: every metric in one pass, or a quick look.

For most results the quick look suffices: they are equal, or differ only by rounding or sums. Each chunk is read while
it is in a core's cache: the differences and their extremes, the squares of the expected values, and, unless an error
exceeds two units in the last place (ulp), the errors in ulp. Where this cannot decide, :func:`measure` does.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_ascend.precision.formats import INTEGERS, Floats, Format
from pytest_ascend.precision.tallies import EXACT_UP_TO, SHARES, WORDS, Dense, Sums, pieces, products

#: Elements of a chunk, chosen so that its arrays stay in a core's cache, and of a quick look's chunk: this does little
#: per element, so that with smaller chunks threads would wait for each other's Python code.
CHUNK, LOOK = 3 << 13, 12 << 13
#: Least elements for which the work is shared, and number of threads.
PARALLEL_FROM, THREADS = 1 << 21, min(4, os.cpu_count() or 1)
#: Up to this many elements, every metric is computed in float64, whatever the dtype of the inputs.
WIDE_UP_TO = 1 << 16

#: Receives every chunk of finite pairs (float64), actual and expected, with the reference runs there, finite or not.
Observer: TypeAlias = Callable[..., None]


@dataclass(slots=True)
class Measurement:
    """The result of one pass: the device's sums, those of each reference run, and counts of non-finite values."""

    actual: Sums
    reference_runs: list[Sums]
    nonfinite: Nonfinite

    def merge(self, other: Measurement) -> None:
        """Add the results for the following elements."""
        self.actual.merge(other.actual)
        for ours, theirs in zip(self.reference_runs, other.reference_runs, strict=True):
            ours.merge(theirs)
        self.nonfinite.merge(other.nonfinite)


def measure(
    actual: Tensor, expected: Tensor, reference_runs: Sequence[Tensor], form: Format, observer: Observer | None = None
) -> Measurement:
    """Measure real floating-point tensors of equal shape; ``form`` is the format that defines the ulp."""
    block = block_size(actual.numel()) if reference_runs and actual.numel() > EXACT_UP_TO // 32 else 0
    tensors = [actual, expected, *reference_runs]
    work = work_dtype(tensors)
    size = CHUNK if work is torch.float32 else CHUNK // 2

    def part(of: Sequence[torch.Tensor], start: int) -> Measurement:
        """Measure tensors whose first element has number ``start``, in chunks of ``size`` elements."""
        beside, dense = [Sums(form, is_reference_run=True, block=block) for _ in reference_runs], None
        found = Measurement(Sums(form, block=block), beside, Nonfinite())
        with np.errstate(all="ignore"):
            for chunk in pieces(of, size, work):
                ours, theirs, *runs = chunk
                if dense is None or dense.size != ours.numel():
                    dense = Dense(ours.numel(), work)
                is_finite = dense.add(found.actual, ours, theirs, start)
                if not is_finite:
                    arrays = [each.to(torch.float64).numpy() for each in chunk]
                    found.nonfinite.add(arrays[0], arrays[1], arrays[2:], form, start)
                    _add_finite(found.actual, ours, theirs, start)
                if observer is not None:
                    places = slice(None) if is_finite else _finite(ours, theirs, form)
                    observer(*(each[places].to(torch.float64).numpy() for each in chunk))
                for sums, values in zip(found.reference_runs, runs, strict=True):
                    if not dense.add(sums, values, theirs, start):
                        _add_finite(sums, values, theirs, start)
                start += ours.numel()
        return found

    length = actual.numel()
    are_flat = all(each.device.type == "cpu" and each.is_contiguous() for each in tensors)
    if observer is None and length >= PARALLEL_FROM and are_flat:
        flat, share = [each.reshape(-1) for each in tensors], -(-length // THREADS // size) * size
        starts = range(0, length, share)
        with ThreadPoolExecutor(THREADS) as pool:
            found, *rest = pool.map(part, ([each[start : start + share] for each in flat] for start in starts), starts)
        for each in rest:
            found.merge(each)
    else:
        found = part(tensors, 0)
    special = found.nonfinite
    if special.shared_nan and not special.explains_nan(form):  # then these are mismatches as well
        if special.first < 0 or special.first_shared < special.first:
            special.first, special.first_is = special.first_shared, (NAN, FINITE)
        special.mismatches += special.shared_nan
    return found


def measured_equal(actual: torch.Tensor, expected: torch.Tensor, form: Format) -> Measurement | None:
    """Return what :func:`measure` would, for tensors of the same dtype and bits; None for others.

    The magnitudes of the expected values are left out, since there is no error to compare with them.
    """
    if (actual.dtype, actual.device) != (expected.dtype, expected.device):
        return None
    bits = INTEGERS[actual.element_size()]
    if bits is torch.int8 or not torch.equal(actual.view(bits), expected.view(bits)):
        return None  # torch has no isfinite for 8 bits
    count, finite = actual.numel(), int(torch.count_nonzero(actual.isfinite()))
    nan = int(torch.count_nonzero(actual.isnan())) if finite < count else 0
    infinite = count - finite - nan
    special = Nonfinite(nan_actual=nan, nan_expected=nan, inf_actual=infinite, inf_expected=infinite)
    return Measurement(Sums(form, count=finite, within=[finite] * len(SHARES)), [], special)


def block_size(elements: int) -> int:
    """Return the size of a block of neighbours: 256, or more in large tensors; it divides a chunk."""
    return min(max(256, 1 << (max(elements - 1, 1) >> 17).bit_length()), CHUNK // 6)


def work_dtype(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Return float32 if it represents all inputs exactly and they are many, else float64."""
    if tensors[0].numel() <= WIDE_UP_TO or any(each.dtype is torch.float64 for each in tensors):
        return torch.float64
    return torch.float32


def _finite(actual: torch.Tensor, expected: torch.Tensor, form: Format) -> torch.Tensor:
    """Return the indices at which both are finite in ``form``."""
    return torch.nonzero(torch.isfinite(actual) & (expected.abs() <= form.largest)).reshape(-1)


def _add_finite(sums: Sums, actual: torch.Tensor, expected: torch.Tensor, start: int) -> None:
    """Add the pairs in which both are finite, in float64."""
    places = _finite(actual, expected, sums.format)
    ours, theirs = actual[places].double(), expected[places].double()
    is_overflow = torch.isinf(ours - theirs)
    for keep in (~is_overflow, is_overflow):
        if keep.any():
            part = Sums(sums.format, is_reference_run=sums.is_reference_run)
            if keep is is_overflow:  # infinite errors
                octaves = theirs[keep].abs().numpy().view(np.int64) >> 52
                part.count, part.abs_argmax, part.expected_max = octaves.size, 0, float(theirs[keep].abs().max())
                part.abs_max = part.abs_sum = part.square_sum = part.actual_square_sum = math.inf
                part.expected_square_sum = part.rel_max = part.rel_sum = math.inf
                part.ulp_max = part.ulp_sum = part.ulp_square_sum = math.inf
                part.spread.add(octaves, np.full(octaves.size, math.inf))
            else:
                Dense(int(keep.sum()), torch.float64).add(part, ours[keep], theirs[keep], 0)
            part.abs_argmax = start + int(places[keep][part.abs_argmax])
            sums.merge(part)
    if sums.block:
        unknown = np.full(-(-actual.numel() // sums.block), np.nan)
        sums.blocks.append((unknown, unknown))


Mask: TypeAlias = npt.NDArray[np.bool_]

#: Classes of values.
FINITE, NAN, PLUS_INF, MINUS_INF = range(4)
NAMES = ("a number", "NaN", "+Inf", "-Inf")


@dataclass(slots=True)
class Nonfinite:
    """Counts of NaN and Inf on both sides, and of elements in which the sides differ."""

    nan_actual: int = 0
    nan_expected: int = 0
    inf_actual: int = 0
    inf_expected: int = 0
    mismatches: int = 0
    first: int = -1
    first_is: tuple[int, int] = (FINITE, FINITE)
    #: Elements in which reference runs are NaN too although a number is expected, and the first of them.
    shared_nan: int = 0
    first_shared: int = -1

    def explains_nan(self, form: Format) -> bool:
        """Return whether an overflow or a non-finite input may have caused NaN where a number is expected."""
        return form.has_short_range or self.nan_expected > 0 or self.inf_expected > 0

    def merge(self, other: Nonfinite) -> None:
        """Add the counts of another pass."""
        if other.mismatches and (self.first < 0 or other.first < self.first):
            self.first, self.first_is = other.first, other.first_is
        if other.shared_nan and (self.first_shared < 0 or other.first_shared < self.first_shared):
            self.first_shared = other.first_shared
        for name in ("nan_actual", "nan_expected", "inf_actual", "inf_expected", "mismatches", "shared_nan"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, actual: Floats, expected: Floats, reference_runs: Sequence[Floats], form: Format, start: int) -> None:
        """Process a chunk (float64) with values that are not finite in ``form``."""
        is_actual, is_expected = classes(actual), classes(expected, form.largest)
        agrees = accepts(actual, expected, reference_runs, form)
        shared = np.flatnonzero(agrees & (is_actual == NAN) & (is_expected == FINITE))
        if shared.size and self.first_shared < 0:
            self.first_shared = start + int(shared[0])
        self.shared_nan += shared.size
        self.nan_actual += int(np.count_nonzero(is_actual == NAN))
        self.nan_expected += int(np.count_nonzero(is_expected == NAN))
        self.inf_actual += int(np.count_nonzero(is_actual >= PLUS_INF))
        self.inf_expected += int(np.count_nonzero(is_expected >= PLUS_INF))
        wrong = np.flatnonzero(~agrees)
        if wrong.size and self.first < 0:
            self.first = start + int(wrong[0])
            self.first_is = int(is_actual[wrong[0]]), int(is_expected[wrong[0]])
        self.mismatches += wrong.size


def accepts(actual: Floats, expected: Floats, reference_runs: Sequence[Floats], form: Format) -> Mask:
    """Return where the kind of value is correct: as expected, as in a reference run, or one rounding away from it.

    Reference runs count because a float64 reference has no overflow of intermediate values. Whether NaN shared with
    reference runs is accepted where a number is expected is decided at the end of the pass.
    """
    is_actual = classes(actual)
    agrees: Mask = is_actual == classes(expected, form.largest)
    for one in reference_runs:
        agrees |= is_actual == classes(one)
    edge = 2.0 ** (form.emax - form.digits + 1)
    near = np.abs(np.abs(expected) - form.largest) <= edge
    same_sign = np.signbit(actual) == np.signbit(expected)
    agrees |= near & same_sign & (is_actual != NAN)
    return agrees


def classes(values: Floats, largest: float = sys.float_info.max) -> npt.NDArray[np.int64]:
    """Return the class of each value: finite, NaN, plus or minus Inf; numbers beyond ``largest`` overflow."""
    return np.select([np.isnan(values), values > largest, values < -largest], [NAN, PLUS_INF, MINUS_INF], FINITE)


#: From this error in ulp on, a common direction of roundings is not judged.
FAR = 2.0


def quick_measure(actual: Tensor, expected: Tensor, form: Format, *, only_rounding: bool) -> Sums | None:
    """Measure two contiguous tensors of equal shape on the CPU; return None if all metrics are needed.

    With ``only_rounding``, stop as soon as rounding alone cannot explain an error. The sums hold what judging a
    rounding needs: those in ulp are complete only if no error reaches :data:`FAR`, and ``abs_argmax`` is the first
    element of the chunk with the largest error (see :func:`furthest_of`).
    """
    work = work_dtype((actual, expected))
    ours, theirs = actual.reshape(-1), expected.reshape(-1)
    length = ours.numel()
    size = min(LOOK if work is torch.float32 else LOOK // 2, length)
    share = -(-length // THREADS // size) * size if length >= PARALLEL_FROM else length

    def part(start: int) -> Sums:
        """Look at one thread's share, which begins at element ``start``."""
        found, arrays = Sums(form), [torch.empty(size, dtype=work) for _ in range(3)]
        with np.errstate(all="ignore"):
            for at in range(start, min(start + share, length), size):
                _look(found, arrays, ours[at : at + size], theirs[at : at + size], at)
                if found.abs_max == math.inf or (only_rounding and found.ulp_max > FAR):
                    break
        return found

    if share == length:
        found = part(0)
    else:
        with ThreadPoolExecutor(THREADS) as pool:
            found, *rest = pool.map(part, range(0, length, share))
        for each in rest:
            found.merge(each)
    return None if found.abs_max == math.inf or (only_rounding and found.ulp_max > FAR) else found


def furthest_of(found: Sums, actual: Tensor, expected: Tensor) -> int:
    """Return the number of the element with the largest error that a quick look found."""
    part = slice(found.abs_argmax, found.abs_argmax + LOOK)
    gaps = actual.reshape(-1)[part].double() - expected.reshape(-1)[part].double()
    return found.abs_argmax + int(gaps.abs().argmax())


def _look(found: Sums, arrays: Sequence[Tensor], actual: Tensor, expected: Tensor, start: int) -> None:
    """Add a chunk whose first element has number ``start``, using arrays of its size or larger, of the working dtype.

    The largest error becomes infinite if all metrics are needed: a value is not finite, or too large for the format.
    """
    work, length, form = arrays[0].dtype, actual.numel(), found.format
    difference = arrays[0][:length]
    theirs = expected if expected.dtype is work else arrays[1][:length].copy_(expected)
    if actual.dtype is work:
        torch.sub(actual, theirs, out=difference)
    else:
        difference.copy_(actual).sub_(theirs)
    lowest, highest = torch.aminmax(difference)
    furthest = max(-float(lowest), float(highest))
    square = products(theirs.numpy(), theirs.numpy())
    # NaN, infinite, or so large that a value or a sum of squares may overflow in its format.
    if not (furthest < math.inf and square < min(form.largest, 1e15) ** 2):
        found.abs_max = math.inf
        return
    found.count += length
    found.expected_square_sum += square
    if furthest > found.abs_max:
        found.abs_max, found.abs_argmax = furthest, start
    if not furthest or found.ulp_max > FAR:
        return
    word, ulps, inverse = WORDS[work], difference.numpy(), arrays[2].numpy()[:length]
    bits = inverse.view(word.integer)
    np.bitwise_and(theirs.numpy().view(word.integer), word.exponent_bits, out=bits)
    np.maximum(bits, max(form.emin + word.bias, 1) << word.shift, out=bits)
    np.subtract(word.exponent_bits, bits, out=bits)
    np.multiply(ulps, inverse, out=ulps)
    np.multiply(ulps, ulps.dtype.type(2.0 ** (form.digits - 2)), out=ulps)
    found.ulp_max = max(found.ulp_max, float(np.maximum.reduce(ulps)), -float(np.minimum.reduce(ulps)))
    if found.ulp_max <= FAR:
        found.ulp_square_sum += products(ulps, ulps)
        np.minimum(np.maximum(ulps, -1, out=ulps), 1, out=ulps)
        found.upward_sum += float(np.add.reduce(ulps))
        found.outward_sum += products(ulps, np.sign(theirs.numpy(), out=inverse))
