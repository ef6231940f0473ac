"""How errors are spread: how many elements have what error in ulp, by the octave of the expected value.

Within an octave (the numbers between two powers of two) the unit in the last place is the same, so that this table
holds all that an error model asks for, and the percentiles too. Small tensors are kept element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import Format

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]

#: Up to so many elements, each is kept; above, they are counted in bins.
EXACT_UP_TO = 1024
#: Octaves run from 2**-255 to 2**255; 0 holds the zeros (of a float32 pass the subnormals, too).
OCTAVES, ZERO_EXPONENT = 512, 256
#: Bins of the error in ulp: eight to an octave from 2**-8 to 2**40. The lowest also holds everything below it.
BINS, LOWEST_ULP_EXPONENT = 384, -8


class Entries(NamedTuple):
    """The table as flat arrays: exponent of the octave (-256 for zero), error in ulp (both bounds), elements."""

    exponents: Ints
    lower: Floats
    upper: Floats
    counts: Ints


@dataclass(slots=True)
class Spread:
    """The table while a pass fills it."""

    _table: Ints | None = None
    _exact: list[tuple[Ints, Floats]] = field(default_factory=list)

    def add(self, octaves: Ints, ulps: Floats) -> None:
        """Take in a chunk: the octave of each expected value (see :func:`octaves_and_inverse`) and each error."""
        held = sum(each[1].size for each in self._exact) + ulps.size
        if self._table is None and held <= EXACT_UP_TO:
            self._exact.append((octaves, ulps))
            return
        for each in (*self._exact, (octaves, ulps)):
            self._count(_keys(*each))
        self._exact.clear()

    def _count(self, keys: Ints) -> None:
        """Count over the range of keys that occur: a small table stays in cache."""
        if not keys.size:
            return
        if self._table is None:
            self._table = np.zeros(OCTAVES * BINS, np.int64)
        lowest = int(keys.min())
        counted = np.bincount(np.subtract(keys, lowest, dtype=np.intp))
        self._table[lowest : lowest + counted.size] += counted

    def merge(self, other: Spread) -> None:
        """Take in what another pass has counted."""
        for each in other._exact:
            self.add(*each)
        if other._table is not None:
            for each in self._exact:
                self._count(_keys(*each))
            self._exact.clear()
            self._table = other._table if self._table is None else self._table + other._table

    def entries(self) -> Entries:
        """Give the table without its empty places."""
        if self._table is None:
            exponents = np.concatenate([each[0] for each in self._exact] or [np.zeros(0, np.int64)])
            ulps = np.concatenate([each[1] for each in self._exact] or [np.zeros(0)]).astype(np.float64)
            return Entries(exponents - ZERO_EXPONENT, ulps, ulps, np.ones(ulps.size, np.int64))
        places = np.flatnonzero(self._table)
        lower, upper = bin_bounds(places % BINS)
        return Entries(places // BINS - ZERO_EXPONENT, lower, upper, self._table[places])


def percentile(entries: Entries, share: float) -> float:
    """Give the error in ulp that this share of the elements does not exceed, rounded down to a bin."""
    order = np.argsort(entries.lower)
    below = np.cumsum(entries.counts[order])
    return float(entries.lower[order][np.searchsorted(below, share * below[-1])]) if below.size else 0.0


def octaves_and_inverse(magnitude: Floats, form: Format) -> tuple[Ints, Floats]:
    """Give, for each value (positive or zero), its octave as a number and one over its ulp in ``form``."""
    wide = magnitude.dtype == np.float64
    shift, bias, word = (52, 1023, np.int64) if wide else (23, 127, np.int32)
    raised = magnitude.view(word) >> shift
    octaves = np.maximum(raised + (ZERO_EXPONENT - bias), 0)
    if wide:
        np.minimum(octaves, OCTAVES - 1, out=octaves)
    else:
        octaves[raised == 0] = 0
    bounded = np.maximum(raised, max(form.emin + bias, 1), out=raised)
    np.subtract(2 * bias + 1, bounded, out=bounded)
    np.left_shift(bounded, shift, out=bounded)
    inverse: Floats = bounded.view(magnitude.dtype)
    # The power of two is taken in two steps, so that it stays finite for the smallest ulp.
    return octaves, inverse


def bin_bounds(bins: Ints) -> tuple[Floats, Floats]:
    """Give the smallest error in ulp that a bin takes, and the smallest that it no longer takes."""
    edges = np.ldexp(1 + bins % 8 / 8, bins // 8 + LOWEST_ULP_EXPONENT)
    following = bins + 1
    upper = np.ldexp(1 + following % 8 / 8, following // 8 + LOWEST_ULP_EXPONENT)
    return np.where(bins == 0, 0.0, edges), np.where(bins == 0, 0.0, upper)


def _keys(octaves: Ints, ulps: Floats) -> Ints:
    wide = ulps.dtype == np.float64
    shift, bias, word = (49, 1023, np.int64) if wide else (20, 127, np.int32)
    bins = ulps.view(word) >> shift
    bins -= (bias + LOWEST_ULP_EXPONENT) << 3
    np.maximum(bins, 0, out=bins)
    np.minimum(bins, BINS - 1, out=bins)
    bins += octaves * BINS
    return bins
