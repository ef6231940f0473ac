"""Every figure of a small chunk of finite pairs, in float64 and with as few calls as may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import octaves_and_inverse
from pytest_ascend.precision.sums import SHARES, Sums

Floats: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """A chunk of expected values (float64, not empty), and what every comparison with them needs."""

    values: Floats
    magnitude: Floats
    highest: float
    square_sum: float
    octaves: Floats
    inverse: Floats

    @classmethod
    def of(cls, values: Floats, form: Format) -> Expected:
        """Compute it, once for the device's values and for each honest result."""
        magnitude = np.abs(values)
        highest, square_sum = float(np.maximum.reduce(magnitude)), float(values.dot(values))
        return cls(values, magnitude, highest, square_sum, *octaves_and_inverse(magnitude, form))


def add_few(sums: Sums, actual: Floats, expected: Expected, start: int) -> bool:
    """Take a chunk (float64) into ``sums``; its first element is number ``start``.

    Gives False, with nothing taken in, where the chunk holds NaN, Inf, or what is Inf in the format, or where a
    difference overflows.
    """
    difference = actual - expected.values
    error = np.abs(difference)
    furthest = float(np.maximum.reduce(error))
    if not (furthest < math.inf and expected.highest <= sums.format.largest):
        return False
    if furthest > sums.abs_max or sums.abs_argmax < 0:
        sums.abs_max, sums.abs_argmax = furthest, start + int(error.argmax())
    sums.count += error.size
    sums.expected_max = max(sums.expected_max, expected.highest)
    sums.expected_square_sum += expected.square_sum
    if sums.block:
        ulps = 2.0 ** (2 - sums.format.digits) / expected.inverse
        sums.blocks.append((mean_squares(error, sums.block), mean_squares(ulps, sums.block)))
    if furthest == 0:
        sums.actual_square_sum += expected.square_sum
        sums.product_sum += expected.square_sum
        sums.within = [each + error.size for each in sums.within]
        sums.spread.add(expected.octaves, error)
        return True
    sums.square_sum += float(error.dot(error))
    if not sums.is_beside:
        sums.actual_square_sum += float(actual.dot(actual))
        sums.product_sum += float(actual.dot(expected.values))
        sums.abs_sum += float(np.add.reduce(error))
        _add_relative(sums, error, expected.magnitude)
    signed = difference * expected.inverse * 2.0 ** (sums.format.digits - 2)
    ulps = np.abs(signed)
    _add_ulps(sums, signed, ulps, expected.values)
    sums.spread.add(expected.octaves, ulps)
    return True


def _add_relative(sums: Sums, error: Floats, magnitude: Floats) -> None:
    ratio = error / magnitude
    largest = float(np.maximum.reduce(ratio))
    if not largest < math.inf:
        ratio[(magnitude == 0) & (error == 0)] = 0
        largest = float(np.maximum.reduce(ratio))
    sums.rel_sum += float(np.add.reduce(ratio))
    sums.rel_max = max(sums.rel_max, largest)
    for place, share in enumerate(SHARES):
        sums.within[place] += ratio.size if largest <= share else int(np.count_nonzero(ratio <= share))


def _add_ulps(sums: Sums, signed: Floats, ulps: Floats, expected: Floats) -> None:
    sums.ulp_max = max(sums.ulp_max, float(np.maximum.reduce(ulps)))
    sums.ulp_sum += float(np.add.reduce(ulps))
    sums.ulp_square_sum += float(ulps.dot(ulps))
    bounded = np.minimum(np.maximum(signed, -1), 1)
    sums.upward_sum += float(np.add.reduce(bounded))
    sums.outward_sum += float(bounded.dot(np.sign(expected)))


def mean_squares(values: Floats, block: int) -> Floats:
    """Return the mean square of every ``block`` values, and of what is left at the end."""
    whole = values.size // block * block
    rest = values[whole:]
    means = (values[:whole].reshape(-1, block) ** 2).mean(axis=1) if whole else rest[:0]
    return np.append(means, rest.dot(rest) / rest.size) if rest.size else means
