"""The distribution of errors: how many elements have which error in ulp, by octave of the expected value.

Within an octave (the numbers between two powers of two) the unit in the last place is constant, so that this table
suffices for an error model and for percentiles. Small tensors are kept element by element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pytest_ascend.precision.formats import Format

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]

#: Up to this many elements, each is kept; more are counted in bins.
EXACT_UP_TO = 1024
#: The exponent that stands for zero: octave 0, which also has the subnormals of the working dtype.
ZERO_EXPONENT = 1023
#: Bins of the error in ulp: eight per octave from 2**-8 to 2**40. The lowest also has everything below it.
BINS, LOWEST_ULP_EXPONENT = 384, -8
#: About here the last bin begins, without an upper end; the largest error of an octave is kept separately.
BEYOND_ULPS = 2.0 ** (BINS // 8 - 1 + LOWEST_ULP_EXPONENT)


class Entries(NamedTuple):
    """The table as flat arrays: exponent of the octave (-1023 for zero), error in ulp (both bounds), elements."""

    exponents: Ints
    lower: Floats
    upper: Floats
    counts: Ints


@dataclass(slots=True)
class Spread:
    """The table during a pass: counts from the key ``_lowest`` on."""

    _lowest: int = 0
    _table: Ints | None = None
    _exact: list[tuple[Ints, Floats]] = field(default_factory=list)
    _entries: Entries | None = None
    #: The largest error of each octave with one beyond the bins: for small expected values, ulps are tiny.
    _beyond: dict[int, float] = field(default_factory=dict)

    def add(self, octaves: Ints, ulps: Floats) -> None:
        """Add a few elements: the octave of each expected value (see :func:`octaves_and_inverse`) and its error."""
        if self._table is None and sum(each[1].size for each in self._exact) + ulps.size <= EXACT_UP_TO:
            self._exact.append((octaves, ulps))
            self._entries = None
        else:
            self._count_and_note(octaves, ulps)

    def count(self, keys: torch.Tensor) -> None:
        """Count elements by key, octave * BINS + bin (at least one element)."""
        lowest = int(keys.min())
        self._take(lowest, torch.bincount(keys - lowest).numpy())

    def _take(self, lowest: int, counts: Ints) -> None:
        """Add counts of the keys from ``lowest`` on; the table spans only keys that occur, so that it fits a cache."""
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
        self.count(torch.from_numpy(_keys(octaves, ulps)))
        large = ulps >= BEYOND_ULPS
        if large.any():
            self.note_beyond(octaves[large], ulps[large])

    def note_beyond(self, octaves: Ints, ulps: Floats) -> None:
        """Keep the largest of these errors by octave; those below BEYOND_ULPS, which have bins, do no harm."""
        self._entries = None
        for octave in np.unique(octaves).tolist():
            self._keep_beyond(octave, float(ulps[octaves == octave].max()))

    def _keep_beyond(self, octave: int, ulps: float) -> None:
        if ulps >= BEYOND_ULPS:
            self._beyond[octave] = max(self._beyond.get(octave, 0.0), ulps)

    def merge(self, other: Spread) -> None:
        """Add the counts of another pass."""
        for each in other._exact:
            self.add(*each)
        if other._table is not None:
            self._take(other._lowest, other._table)
        for octave, ulps in other._beyond.items():
            self._keep_beyond(octave, ulps)

    def entries(self) -> Entries:
        """Return the table without empty entries."""
        if self._entries is None:
            self._entries = self._counted()
        return self._entries

    def _counted(self) -> Entries:
        if self._table is None:
            held = self._exact or [(np.zeros(0, np.int64), np.zeros(0))]
            exponents, ulps = held[0] if len(held) == 1 else (np.concatenate(each) for each in zip(*held, strict=True))
            return Entries(exponents - ZERO_EXPONENT, ulps, ulps, np.ones(ulps.size, np.int64))
        places = np.flatnonzero(self._table)
        octaves, bins = np.divmod(places + self._lowest, BINS)
        lower, upper = bin_bounds(bins)
        for octave, largest in self._beyond.items():
            last = (octaves == octave) & (bins == BINS - 1)
            lower[last] = upper[last] = largest
        return Entries(octaves - ZERO_EXPONENT, lower, upper, self._table[places])


def percentile(entries: Entries, share: float) -> float:
    """Return the error in ulp that this share of the elements does not exceed, rounded down to a bin."""
    order = np.argsort(entries.lower)
    below = np.cumsum(entries.counts[order])
    return float(entries.lower[order][np.searchsorted(below, share * below[-1])]) if below.size else 0.0


def octaves_and_inverse(magnitude: Floats, form: Format) -> tuple[Ints, Floats]:
    """Return the octave's number and the reciprocal of the ulp of each value (float64, positive or zero) in ``form``.

    The latter is divided by ``2 ** (digits - 2)``, so that it stays finite for the smallest ulp.
    """
    raised = magnitude.view(np.int64) >> 52
    bounded = np.maximum(raised, max(form.emin + 1023, 1))
    inverse: Floats = ((2 * 1023 + 1 - bounded) << 52).view(np.float64)
    return raised, inverse


def bin_bounds(bins: Ints) -> tuple[Floats, Floats]:
    """Return the lower and the upper bound of a bin, in ulp; the upper one is excluded."""
    edges = np.ldexp(1 + bins % 8 / 8, bins // 8 + LOWEST_ULP_EXPONENT)
    following = bins + 1
    upper = np.ldexp(1 + following % 8 / 8, following // 8 + LOWEST_ULP_EXPONENT)
    return np.where(bins == 0, 0.0, edges), np.where(bins == 0, 0.0, upper)


def _keys(octaves: Ints, ulps: Floats) -> Ints:
    bins = (ulps.view(np.int64) >> 49) - ((1023 + LOWEST_ULP_EXPONENT) << 3)
    keys: Ints = np.minimum(np.maximum(bins, 0), BINS - 1) + octaves * BINS
    return keys


#: Percentiles of the error in every verdict.
PERCENTILES = (50.0, 99.0, 99.9)
_NAMES = tuple(f"ulp_p{each:g}" for each in PERCENTILES)
_RANKS = np.array(PERCENTILES) / 100
_PLACES = tuple(zip(_NAMES, _RANKS.tolist(), strict=True))


def percentiles(entries: Entries) -> dict[str, float]:
    """Return by name the error in ulp at each of :data:`PERCENTILES`, rounded up to a bin of the table."""
    if not entries.counts.size:
        return dict.fromkeys(_NAMES, 0.0)
    if entries.upper is entries.lower:  # element by element
        values = np.sort(entries.upper)
        return {name: float(values[math.ceil(rank * values.size) - 1]) for name, rank in _PLACES}
    order = np.argsort(entries.upper)
    below = np.cumsum(entries.counts[order])
    ranks = np.ceil(_RANKS * below[-1])
    values = entries.upper[order][np.searchsorted(below, ranks)]
    return dict(zip(_NAMES, values.tolist(), strict=True))
