"""A quick measurement of two tensors: whether they are equal, or differ only by rounding or sums.

Most results need no more. Each chunk is read while it is in a core's cache: the differences and their extremes, the
squares of the expected values, and, unless an error exceeds two units in the last place (ulp), the errors in ulp. What
this cannot decide, :mod:`measure` does, with every figure.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_ascend.precision.dense import WORDS, products
from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.measure import CHUNK, MOST_THREADS, PARALLEL_FROM, work_dtype

Floats: TypeAlias = npt.NDArray[Any]

#: From this error in ulp on, a shared direction of roundings is not judged.
FAR = 2.0


@dataclass(slots=True)
class QuickMeasurement:
    """Sums over some elements. Sums in ulp are complete only if no error is :data:`FAR`."""

    count: int = 0
    furthest: float = 0.0
    #: The first element of the chunk with the largest error.
    chunk: int = 0
    expected_square_sum: float = 0.0
    ulp_max: float = 0.0
    ulp_square_sum: float = 0.0
    outward_sum: float = 0.0
    upward_sum: float = 0.0
    #: Whether a value is non-finite, or too large for the format: all figures are needed.
    is_odd: bool = False

    def place(self, actual: Tensor, expected: Tensor) -> int:
        """Return the number of the element with the largest error."""
        part = slice(self.chunk, self.chunk + CHUNK)
        gaps = actual.reshape(-1)[part].double() - expected.reshape(-1)[part].double()
        return self.chunk + int(gaps.abs().argmax())

    def merge(self, other: QuickMeasurement) -> None:
        """Add the sums over the elements that follow."""
        if other.furthest > self.furthest:
            self.furthest, self.chunk = other.furthest, other.chunk
        self.count += other.count
        self.expected_square_sum += other.expected_square_sum
        self.ulp_max = max(self.ulp_max, other.ulp_max)
        self.ulp_square_sum += other.ulp_square_sum
        self.outward_sum += other.outward_sum
        self.upward_sum += other.upward_sum
        self.is_odd |= other.is_odd


def quick_measure(actual: Tensor, expected: Tensor, form: Format, *, only_rounding: bool) -> QuickMeasurement | None:
    """Measure two contiguous tensors of equal shape on the CPU; return None if all figures are needed.

    With ``only_rounding`` it stops as soon as rounding alone cannot explain an error.
    """
    work = work_dtype((actual, expected))
    ours, theirs = actual.reshape(-1), expected.reshape(-1)
    length = ours.numel()
    size = min(CHUNK if work is torch.float32 else CHUNK // 2, length)
    threads = min(MOST_THREADS, os.cpu_count() or 1) if length >= PARALLEL_FROM else 1
    share = -(-length // threads // size) * size

    def part(start: int) -> QuickMeasurement:
        found, buffers = QuickMeasurement(), _Buffers(size, work, form)
        with np.errstate(all="ignore"):
            for at in range(start, min(start + share, length), size):
                buffers.take(found, ours[at : at + size], theirs[at : at + size], at)
                if found.is_odd or (only_rounding and found.ulp_max > FAR):
                    break
        return found

    if threads == 1:
        found = part(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            found, *rest = pool.map(part, range(0, length, share))
        for each in rest:
            found.merge(each)
    return None if found.is_odd or (only_rounding and found.ulp_max > FAR) else found


class _Buffers:
    """Arrays for one chunk; used by one thread."""

    def __init__(self, size: int, dtype: torch.dtype, form: Format) -> None:
        self.size, self.dtype, self.word, self.form = size, dtype, WORDS[dtype], form
        self.largest_square = min(form.largest, 1e15) ** 2
        self._difference = torch.empty(size, dtype=dtype)
        self._inverse = torch.empty(size, dtype=dtype)
        self._other = torch.empty(size, dtype=dtype)

    def take(self, found: QuickMeasurement, actual: Tensor, expected: Tensor, start: int) -> None:
        """Add a chunk whose first element is number ``start``."""
        length = actual.numel()
        difference = self._difference[:length]
        theirs = expected if expected.dtype is self.dtype else self._other[:length].copy_(expected)
        if actual.dtype is self.dtype:
            torch.sub(actual, theirs, out=difference)
        else:
            difference.copy_(actual).sub_(theirs)
        lowest, highest = torch.aminmax(difference)
        furthest = max(-float(lowest), float(highest))
        square = products(theirs.numpy(), theirs.numpy())
        # NaN, infinite, or so large that a value or a sum of squares may overflow in its format.
        if not (furthest < math.inf and square < self.largest_square):
            found.is_odd = True
            return
        found.count += length
        found.expected_square_sum += square
        if furthest > found.furthest:
            found.furthest, found.chunk = furthest, start
        if furthest and found.ulp_max <= FAR:
            self._take_ulps(found, difference.numpy(), theirs.numpy())

    def _take_ulps(self, found: QuickMeasurement, difference: Floats, expected: Floats) -> None:
        word, form, length = self.word, self.form, difference.size
        inverse = self._inverse.numpy()[:length]
        bits = inverse.view(word.integer)
        np.bitwise_and(expected.view(word.integer), word.exponent_bits, out=bits)
        np.maximum(bits, max(form.emin + word.bias, 1) << word.shift, out=bits)
        np.subtract(word.exponent_bits, bits, out=bits)
        np.multiply(difference, inverse, out=difference)
        np.multiply(difference, difference.dtype.type(2.0 ** (form.digits - 2)), out=difference)
        found.ulp_max = max(found.ulp_max, float(np.maximum.reduce(difference)), -float(np.minimum.reduce(difference)))
        if found.ulp_max > FAR:
            return
        found.ulp_square_sum += products(difference, difference)
        np.minimum(np.maximum(difference, -1, out=difference), 1, out=difference)
        found.upward_sum += float(np.add.reduce(difference))
        found.outward_sum += products(difference, np.sign(expected, out=inverse))
