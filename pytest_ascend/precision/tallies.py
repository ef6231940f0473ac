"""Running sums over pairs of finite values, from which every metric is derived, and the distribution of errors.

A chunk is added by vector operations on arrays that fit a core's cache. numpy and torch share the arrays; each step
uses the faster one (torch: sums, bounds and counting; numpy: the rest). Both release the GIL, so that threads run in
parallel.
Sums are in float32 for float32 inputs; if they under- or overflow, they are recomputed in float64. Within an octave
(the numbers between two powers of two) the unit in the last place is constant, so a table of errors by octave is
enough for an error model and for percentiles. For small tensors every error is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pytest_ascend.precision.formats import Floats, Format, Ints

#: Up to this many elements, each error is stored; more are counted in bins.
EXACT_UP_TO = 1024
#: The biased exponent that stands for zero as octave 0, which includes the subnormals of the working dtype.
ZERO_EXPONENT = 1023
#: Bins of the error in ulp: eight per octave from 2**-8 to 2**40. The lowest includes everything below it.
BINS, LOWEST_ULP_EXPONENT = 384, -8
#: The last bin begins about here and has no upper end; the largest error of an octave is stored separately.
BEYOND_ULPS = 2.0 ** (BINS // 8 - 1 + LOWEST_ULP_EXPONENT)
_EDGES = np.ldexp(1 + np.arange(1, BINS + 1) % 8 / 8, np.arange(1, BINS + 1) // 8 + LOWEST_ULP_EXPONENT)
#: The lower (inclusive) and upper (exclusive) bounds of the bins, in ulp. The lowest bin counts as no error.
_BOUNDS = np.stack([np.append(0.0, _EDGES[:-1]), np.append(0.0, _EDGES[1:])])


class Entries(NamedTuple):
    """The table as flat arrays: exponent of the octave (-1023 for zero), error in ulp (both bounds), elements."""

    exponents: Ints
    lower: Floats
    upper: Floats
    counts: Ints


@dataclass(slots=True)
class Spread:
    """The table during a pass: counts for keys from ``_lowest`` on."""

    _lowest: int = 0
    _table: Ints | None = None
    _exact: list[tuple[Ints, Floats]] = field(default_factory=list)
    _entries: Entries | None = None
    #: The largest error of each octave that exceeds the bins: for small expected values, ulps are tiny.
    _beyond: dict[int, float] = field(default_factory=dict)

    def add(self, octaves: Ints, ulps: Floats) -> None:
        """Add some elements: the octave of each expected value (the exponent bits as float64) and its error in ulp."""
        if self._table is None and sum(each[1].size for each in self._exact) + ulps.size <= EXACT_UP_TO:
            self._exact.append((octaves, ulps))
            self._entries = None
        else:
            self._count_and_note(octaves, ulps)

    def count(self, keys: Tensor, counts: Ints | None = None) -> None:
        """Count elements by key, octave * BINS + bin (at least one); ``counts`` are those of consecutive keys.

        The table spans only keys that occur, so that it fits a cache.
        """
        lowest = int(keys.min())
        counts = torch.bincount(keys - lowest).numpy() if counts is None else counts
        self._entries = None
        before = [(octaves, ulps) for octaves, ulps in self._exact if ulps.size]
        self._exact.clear()
        highest = lowest + counts.size
        if self._table is None:
            self._lowest, self._table = lowest, np.zeros(counts.size, np.int64)
        elif lowest < self._lowest or highest > self._lowest + self._table.size:
            start, end = min(lowest, self._lowest), max(highest, self._lowest + self._table.size)
            wider = np.zeros(end - start, np.int64)
            wider[self._lowest - start : self._lowest - start + self._table.size] = self._table
            self._lowest, self._table = start, wider
        self._table[lowest - self._lowest : highest - self._lowest] += counts
        for each in before:
            self._count_and_note(*each)

    def _count_and_note(self, octaves: Ints, ulps: Floats) -> None:
        bins = (ulps.view(np.int64) >> 49) - ((1023 + LOWEST_ULP_EXPONENT) << 3)
        keys: Ints = np.minimum(np.maximum(bins, 0), BINS - 1) + octaves * BINS
        self.count(torch.from_numpy(keys))
        self.note_beyond(octaves, ulps)

    def note_beyond(self, octaves: Ints, ulps: Floats) -> None:
        """Store the largest of these errors by octave; those below BEYOND_ULPS, which have bins, are ignored."""
        self._entries = None
        for octave in np.unique(octaves[ulps >= BEYOND_ULPS]).tolist():
            self._beyond[octave] = max(self._beyond.get(octave, 0.0), float(ulps[octaves == octave].max()))

    def merge(self, other: Spread) -> None:
        """Add the counts of another pass."""
        for each in other._exact:
            self.add(*each)
        if other._table is not None:
            self.count(torch.arange(other._lowest, other._lowest + other._table.size), other._table)
        for octave, ulps in other._beyond.items():
            self._beyond[octave] = max(self._beyond.get(octave, 0.0), ulps)

    def entries(self) -> Entries:
        """Return the table without empty entries."""
        if self._entries is not None:
            return self._entries
        if self._table is None:
            held = self._exact or [(np.zeros(0, np.int64), np.zeros(0))]
            exponents, ulps = held[0] if len(held) == 1 else (np.concatenate(each) for each in zip(*held, strict=True))
            self._entries = Entries(exponents - ZERO_EXPONENT, ulps, ulps, np.ones(ulps.size, np.int64))
        else:
            places = np.flatnonzero(self._table)
            octaves, bins = np.divmod(places + self._lowest, BINS)
            bounds = _BOUNDS[:, bins]
            for octave, largest in self._beyond.items():
                bounds[:, (octaves == octave) & (bins == BINS - 1)] = largest
            self._entries = Entries(octaves - ZERO_EXPONENT, bounds[0], bounds[1], self._table[places])
        return self._entries


def percentile(entries: Entries, share: float) -> float:
    """Return the error in ulp that this share of the elements does not exceed, rounded down to a bin."""
    order = np.argsort(entries.lower)
    below = np.cumsum(entries.counts[order])
    return float(entries.lower[order][np.searchsorted(below, share * below[-1])]) if below.size else 0.0


#: Percentiles of the error that every verdict reports.
PERCENTILES = (50.0, 99.0, 99.9)
_NAMES, _RANKS = tuple(f"ulp_p{each:g}" for each in PERCENTILES), np.array(PERCENTILES) / 100


def percentiles(entries: Entries) -> dict[str, float]:
    """Return, by name, the error in ulp at each of :data:`PERCENTILES`, rounded up to a bin of the table."""
    if not entries.counts.size:
        return dict.fromkeys(_NAMES, 0.0)
    if entries.upper is entries.lower:  # element by element
        values = np.sort(entries.upper)[np.ceil(_RANKS * entries.upper.size).astype(np.intp) - 1]
    else:
        order = np.argsort(entries.upper)
        below = np.cumsum(entries.counts[order])
        values = entries.upper[order][np.searchsorted(below, np.ceil(_RANKS * below[-1]))]
    return dict(zip(_NAMES, values.tolist(), strict=True))


#: Common thresholds of the relative error, for which the share of elements within is counted: 0.1 %, 0.5 %, 1 %.
SHARES = (0.001, 0.005, 0.01)


@dataclass(slots=True)
class Sums:
    """Sums for one side (a device's values, or a reference run) compared with the expected values.

    Errors are ``abs(actual - expected)``; errors in ulp are divided by the unit in the last place of ``format`` at
    ``expected``. All sums are over finite pairs. ``outward`` counts an error away from zero as positive, ``upward`` one
    towards plus infinity, each capped at one ulp: their means reveal a wrong rounding mode.
    """

    format: Format
    #: Whether this is a reference run, for which only the sums that the model needs are computed.
    is_reference_run: bool = False
    count: int = 0
    abs_sum: float = 0.0
    abs_max: float = 0.0
    abs_argmax: int = -1
    square_sum: float = 0.0
    rel_sum: float = 0.0
    rel_max: float = 0.0
    ulp_sum: float = 0.0
    ulp_max: float = 0.0
    ulp_square_sum: float = 0.0
    outward_sum: float = 0.0
    upward_sum: float = 0.0
    expected_square_sum: float = 0.0
    actual_square_sum: float = 0.0
    product_sum: float = 0.0
    expected_max: float = 0.0
    within: list[int] = field(default_factory=lambda: [0] * len(SHARES))
    spread: Spread = field(default_factory=Spread)
    #: Elements in a block of neighbours; 0 without blocks.
    block: int = 0
    #: Mean squares of the errors and of the ulp in each block, chunk by chunk; NaN for chunks with non-finite values.
    blocks: list[tuple[Floats, Floats]] = field(default_factory=list)

    def merge(self, other: Sums) -> None:
        """Add the sums over the following elements."""
        if other.abs_max > self.abs_max or self.abs_argmax < 0:
            self.abs_argmax = other.abs_argmax
        for name in SUMMED:
            ours, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(ours, theirs) if name.endswith("_max") else ours + theirs)
        self.within = [ours + theirs for ours, theirs in zip(self.within, other.within, strict=True)]
        self.spread.merge(other.spread)


#: Fields that are added when sums are merged; for those with "max", the larger value is kept.
SUMMED = tuple(each.name for each in fields(Sums) if each.name.endswith(("_sum", "_max", "count", "blocks")))

#: Elements per piece copied from a device other than the CPU: few transfers, little memory.
FETCHED_AT_A_TIME = 1 << 20


def pieces(tensors: Sequence[Tensor], size: int, dtype: torch.dtype | None = None) -> Iterator[list[Tensor]]:
    """Yield flat pieces of at most ``size`` elements of tensors of equal shape, in row-major order, on the CPU.

    With ``dtype`` they are converted. Contiguous CPU tensors are not copied; others are copied one piece at a time.
    """
    length = tensors[0].numel()
    if any(each.device.type != "cpu" for each in tensors) and size < FETCHED_AT_A_TIME:
        for fetched in pieces(tensors, FETCHED_AT_A_TIME):
            yield from pieces(fetched, size, dtype)
    elif length <= size or all(each.is_contiguous() for each in tensors):
        flat = [each.reshape(-1) for each in tensors]
        for start in range(0, max(length, 1), size):
            yield [each[start : start + size].to("cpu", dtype or each.dtype) for each in flat]
    else:  # along the first dimension; rows that are too large are split further
        row = tensors[0][0].numel()
        step = max(1, size // row)
        for start in range(0, tensors[0].shape[0], step):
            part = [each[start : start + step] for each in tensors]
            yield from pieces(part if row <= size else [each[0] for each in part], size, dtype)


#: Between these bounds, sums of squares are accurate enough in float32.
SAFE = (1e-20, 1e30)
#: The longest dot product that BLAS computes in a single thread.
PART = 1 << 13
#: The range of errors in ulp that the distribution's table resolves.
SPREAD_RANGE = (2.0**LOWEST_ULP_EXPONENT, 2.0 ** (LOWEST_ULP_EXPONENT + BINS // 8) * (1 - 2.0**-24))


class Word(NamedTuple):
    """The layout of a float: its integer type, the bits of the significand, the exponent's bias and bit mask."""

    integer: type[Any]
    shift: int
    bias: int
    exponent_bits: int


WORDS = {torch.float32: Word(np.int32, 23, 127, 0xFF << 23), torch.float64: Word(np.int64, 52, 1023, 0x7FF << 52)}


class Dense:
    """Adds chunks of ``size`` elements of one dtype (float32 or float64) to sums; used by one thread."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.size, self._word, self._keeps_each = size, WORDS[dtype], size <= EXACT_UP_TO
        arrays = (torch.empty(size, dtype=dtype, device="cpu").numpy() for _ in range(5))
        #: Signed errors, errors, magnitudes of expected values, reciprocals of their ulp, and errors in ulp.
        self._difference, self._error, self._magnitude, self._inverse, self._ulps = arrays
        self._octaves, self._mask = np.empty(size, self._word.integer), np.empty(size, np.bool_)

    def add(self, sums: Sums, actual: Tensor, expected: Tensor, start: int) -> bool:
        """Add a chunk (contiguous, on the CPU) to ``sums``; its first element has number ``start``.

        Returns False, with nothing added, if the chunk has NaN, Inf, or values that overflow in the format.
        """
        if not self.size:
            return True
        np.subtract(actual.numpy(), expected.numpy(), out=self._difference)
        np.abs(self._difference, out=self._error)
        np.abs(expected.numpy(), out=self._magnitude)
        lowest, highest = float(np.minimum.reduce(self._magnitude)), float(np.maximum.reduce(self._magnitude))
        furthest = float(np.maximum.reduce(self._error))
        if not (furthest < math.inf and highest <= sums.format.largest):
            return False
        if furthest > sums.abs_max or sums.abs_argmax < 0:
            sums.abs_max, sums.abs_argmax = furthest, start + int(self._error.argmax())
        sums.count += self.size
        sums.expected_max = max(sums.expected_max, highest)
        self._octaves_and_inverse(sums.format, lowest)
        bound = furthest * 2.0**sums.format.digits / BEYOND_ULPS
        if not self._keeps_each and lowest < bound:
            # Errors too large for the bins, where the expected value is much smaller than the error.
            places = np.flatnonzero((self._magnitude < bound) & (self._error > 0))
            errors, inverses = (each[places].astype(np.float64) for each in (self._error, self._inverse))
            ulps = errors * inverses * 2.0 ** (sums.format.digits - 2)
            sums.spread.note_beyond(self._octaves[places] // BINS, ulps)
        if sums.block:
            np.divide(self._ulps.dtype.type(2.0 ** (2 - sums.format.digits)), self._inverse, out=self._ulps)
            errors, roundings = (each.astype(np.float64) for each in (self._error, self._ulps))
            sums.blocks.append((mean_squares(errors, sums.block), mean_squares(roundings, sums.block)))
        square = _dot(expected.numpy(), expected.numpy())
        sums.expected_square_sum += square
        if furthest:
            sums.square_sum += _dot(self._difference, self._difference)
            if not sums.is_reference_run:
                self._add_figures(sums, actual, expected, lowest)
            self._add_ulps(sums, expected)
        else:
            sums.actual_square_sum += square
            sums.product_sum += square
            sums.within = [each + self.size for each in sums.within]
            self._add_spread(sums, is_equal=True)
        return True

    def _add_spread(self, sums: Sums, *, is_equal: bool = False) -> None:
        """Add errors in ulp to the distribution: few one by one, many by their bins."""
        word = self._word
        if self._keeps_each:
            errors = np.zeros(self.size) if is_equal else self._ulps.astype(np.float64)
            sums.spread.add(self._octaves.astype(np.int64) // BINS, errors)
        elif is_equal:
            sums.spread.count(torch.from_numpy(self._octaves))
        else:
            keys = torch.from_numpy(self._ulps).clamp_(*SPREAD_RANGE).numpy().view(word.integer)
            np.right_shift(keys, word.shift - 3, out=keys)
            keys -= (word.bias + LOWEST_ULP_EXPONENT) << 3
            keys += self._octaves
            sums.spread.count(torch.from_numpy(keys))

    def _add_figures(self, sums: Sums, actual: Tensor, expected: Tensor, lowest: float) -> None:
        """Add what only the metrics of a verdict need: products and relative errors."""
        ratio = self._ulps  # computed only afterwards
        sums.actual_square_sum += _dot(actual.numpy(), actual.numpy())
        sums.product_sum += _dot(actual.numpy(), expected.numpy())
        sums.abs_sum += float(torch.from_numpy(self._error).sum(dtype=torch.float64))
        np.divide(self._error, self._magnitude, out=ratio)
        if lowest == 0:
            ratio[(self._magnitude == 0) & (self._error == 0)] = 0
        largest = float(np.maximum.reduce(ratio))
        sums.rel_sum += float(torch.from_numpy(ratio).sum(dtype=torch.float64))
        sums.rel_max = max(sums.rel_max, largest)
        for place, share in enumerate(SHARES):
            within = self.size
            if largest > share:
                within = int(np.count_nonzero(np.less_equal(ratio, share, out=self._mask)))
            sums.within[place] += within

    def _add_ulps(self, sums: Sums, expected: Tensor) -> None:
        """Add errors in ulp, signed and unsigned; this comes last, since it overwrites the other arrays."""
        signed, sign, ulps = self._difference, self._error, self._ulps
        np.multiply(signed, self._inverse, out=signed)
        np.multiply(signed, signed.dtype.type(2.0 ** (sums.format.digits - 2)), out=signed)
        np.abs(signed, out=ulps)
        sums.ulp_max = max(sums.ulp_max, float(np.maximum.reduce(ulps)))
        sums.ulp_sum += float(torch.from_numpy(ulps).sum(dtype=torch.float64))
        sums.ulp_square_sum += _dot(ulps, ulps)
        sums.upward_sum += float(torch.from_numpy(signed).clamp_(-1, 1).sum())
        np.sign(expected.numpy(), out=sign)
        sums.outward_sum += products(signed, sign)
        self._add_spread(sums)

    def _octaves_and_inverse(self, form: Format, lowest: float) -> None:
        """Compute, for each expected value, BINS times the number of its octave, and the reciprocal of its ulp.

        The reciprocal is divided by ``2 ** (digits - 2)``, so that it remains finite for the smallest ulp.
        """
        word, raised = self._word, self._octaves
        magnitude, inverse = (each.view(word.integer) for each in (self._magnitude, self._inverse))
        np.bitwise_and(magnitude, word.exponent_bits, out=raised)
        bounded = raised
        if lowest < 2.0**form.emin:
            floor = max(form.emin + word.bias, 1) << word.shift
            bounded = np.maximum(raised, floor, out=inverse)
        np.subtract(word.exponent_bits, bounded, out=inverse)
        np.right_shift(raised, word.shift, out=raised)
        raised += ZERO_EXPONENT - word.bias
        if lowest < 2.0 ** (1 - word.bias):
            raised[np.less_equal(raised, ZERO_EXPONENT - word.bias, out=self._mask)] = 0
        raised *= BINS


def _dot(one: Floats, other: Floats) -> float:
    total = products(one, other)
    if one.dtype == np.float32 and not SAFE[0] < abs(total) < SAFE[1]:
        total = products(one.astype(np.float64), other.astype(np.float64))
    return total


def products(one: Floats, other: Floats) -> float:
    """Sum the products in parts small enough that BLAS uses no threads of its own, which would slow down ours."""
    whole = one.size // PART * PART
    parts = np.matmul(one[:whole].reshape(-1, 1, PART), other[:whole].reshape(-1, PART, 1))
    return float(np.add.reduce(parts, axis=None, dtype=np.float64)) + float(one[whole:].dot(other[whole:]))


def mean_squares(values: Floats, block: int) -> Floats:
    """Return the mean square of every ``block`` values, and of the remainder."""
    whole = values.size // block * block
    rest = values[whole:]
    means = (values[:whole].reshape(-1, block) ** 2).mean(axis=1) if whole else rest[:0]
    return np.append(means, rest.dot(rest) / rest.size) if rest.size else means
