"""Every figure of a comparison in one pass: running sums over pairs of finite values.

Chunks are small enough to stay in a core's cache, so that the pass reads both inputs once and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import Spread, octaves_and_inverse

Floats: TypeAlias = npt.NDArray[Any]
Places: TypeAlias = npt.NDArray[np.int64] | None

#: Relative errors whose share is counted, as the field reports them: 0.1 %, 0.5 % and 1 %.
SHARES = (0.001, 0.005, 0.01)


#: Fields that are joined by their maximum, and by their sum.
MAXIMA = ("abs_max", "rel_max", "ulp_max", "expected_max")
TOTALS = (
    "count",
    "abs_sum",
    "square_sum",
    "rel_sum",
    "ulp_sum",
    "ulp_square_sum",
    "outward_sum",
    "upward_sum",
    "expected_square_sum",
    "actual_square_sum",
    "product_sum",
    "blocks",
)


@dataclass(slots=True)
class Sums:
    """What a pass knows so far of one side (a device's values, or an honest result) against what was expected.

    Errors are ``abs(actual - expected)``; errors in ulp are divided by the unit in the last place of ``format`` at
    ``expected``. All sums are over finite pairs. ``outward`` counts an error away from zero as positive,
    ``upward`` one towards plus infinity, and none as more than one ulp: their means show a wrong rounding mode.
    """

    format: Format
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
    #: Elements in a block of neighbours; 0 where blocks are not asked for.
    block: int = 0
    #: Mean square of the errors and of the ulp in each block, chunk by chunk.
    blocks: list[tuple[Floats, Floats]] = field(default_factory=list)

    def add(self, actual: Floats, expected: Floats, start: int, places: Places = None) -> bool:
        """Take in a chunk of equal shape and dtype (float32 or float64), whose first element is number ``start``.

        ``places`` says which elements of a chunk these are, where they are not all. Gives False, with nothing taken
        in, where the chunk holds NaN, Inf, or what is Inf in the format, or where a difference overflows.
        """
        difference = actual - expected
        error = np.abs(difference)
        largest = float(error.max(initial=0.0))
        if not largest < np.inf:
            return False
        if error.size == 0:
            return True
        magnitude = np.abs(expected)
        if not float(magnitude.max()) <= self.format.largest:
            return False
        if largest > self.abs_max or self.abs_argmax < 0:
            place = int(error.argmax())
            self.abs_max, self.abs_argmax = largest, start + (place if places is None else int(places[place]))
        self.count += error.size
        self._add_absolute(actual, expected, error, magnitude)
        if largest == 0:
            self.within = [each + error.size for each in self.within]
            self.spread.add(octaves_and_inverse(magnitude, self.format)[0], error)
        else:
            self._add_relative(error, magnitude)
            self._add_ulps(difference, error, expected, magnitude)
        if self.block and places is None:
            self._add_blocks(error, magnitude)
        return True

    def merge(self, other: Sums) -> None:
        """Take in what another pass has summed of the elements that follow."""
        if other.abs_max > self.abs_max or self.abs_argmax < 0:
            self.abs_argmax = other.abs_argmax
        for name in MAXIMA:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.within = [ours + theirs for ours, theirs in zip(self.within, other.within, strict=True)]
        self.spread.merge(other.spread)

    def _add_absolute(self, actual: Floats, expected: Floats, error: Floats, magnitude: Floats) -> None:
        largest = float(magnitude.max(initial=0.0))
        self.expected_max = max(self.expected_max, largest)
        square_sum = _square_sum(magnitude, largest)
        self.expected_square_sum += square_sum
        furthest = float(error.max(initial=0.0))
        if furthest == 0:
            self.actual_square_sum += square_sum
            self.product_sum += square_sum
            return
        self.abs_sum += float(error.sum())
        self.square_sum += _square_sum(error, furthest)
        self.actual_square_sum += _square_sum(actual, largest)
        if actual.dtype == np.float32 and not _SAFE[0] < largest < _SAFE[1]:
            actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        self.product_sum += float((actual * expected).sum())

    def _add_relative(self, error: Floats, magnitude: Floats) -> None:
        ratio = error / magnitude
        largest = float(ratio.max(initial=0.0))
        if not largest < np.inf:
            ratio[(magnitude == 0) & (error == 0)] = 0
            largest = float(ratio.max())
        self.rel_sum += float(ratio.sum())
        self.rel_max = max(self.rel_max, largest)
        for place, share in enumerate(SHARES):
            self.within[place] += ratio.size if largest <= share else int(np.count_nonzero(ratio <= share))

    def _add_ulps(self, difference: Floats, error: Floats, expected: Floats, magnitude: Floats) -> None:
        octaves, inverse = octaves_and_inverse(magnitude, self.format)
        ulps = error * inverse
        ulps *= 2.0 ** (self.format.digits - 2)
        largest = float(ulps.max(initial=0.0))
        self.ulp_sum += float(ulps.sum())
        self.ulp_max = max(self.ulp_max, largest)
        self.ulp_square_sum += _square_sum(ulps, largest)
        bounded = np.minimum(ulps, 1)
        self.upward_sum += float(np.copysign(bounded, difference).sum())
        np.multiply(difference, expected, out=difference)
        self.outward_sum += float(np.copysign(bounded, difference, out=difference).sum())
        self.spread.add(octaves, ulps)

    def _add_blocks(self, error: Floats, magnitude: Floats) -> None:
        _, inverse = octaves_and_inverse(magnitude, self.format)
        ulps = 2.0 ** (2 - self.format.digits) / inverse
        self.blocks.append((mean_squares(error, self.block), mean_squares(ulps, self.block)))


def mean_squares(values: Floats, block: int) -> Floats:
    """Give the mean square of every ``block`` values, and of what is left at the end (float64)."""
    whole = values.size // block * block
    body = values[:whole].reshape(-1, block)
    means = (body * body).mean(axis=1, dtype=np.float64)
    rest = values[whole:].astype(np.float64)
    return np.append(means, (rest * rest).mean()) if rest.size else means


#: The largest value of a float32 chunk has to lie between these for its squares to be summed in float32.
_SAFE = (1e-12, 1e15)


def _square_sum(values: Floats, largest: float) -> float:
    if values.dtype == np.float32 and largest > 0 and not _SAFE[0] < largest < _SAFE[1]:
        values = values.astype(np.float64)
    return float((values * values).sum())
