"""Compute every figure of a chunk of finite pairs, with vector operations on arrays that fit a core's cache.

numpy and torch share the arrays; each step uses the faster one (torch: sums, bounds and counting; numpy: the rest).
Both release the GIL, so that threads run in parallel. Sums are in float32 for float32 inputs; if they under- or
overflow, they are computed again in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import (
    BEYOND_ULPS,
    BINS,
    EXACT_UP_TO,
    LOWEST_ULP_EXPONENT,
    ZERO_EXPONENT,
    octaves_and_inverse,
)
from pytest_ascend.precision.sums import SHARES, Sums

Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]

#: Sums of float32 squares between these bounds are accurate enough.
SAFE = (1e-20, 1e30)
#: The longest dot product that BLAS computes in one thread.
PART = 1 << 13
#: The range of errors in ulp that the spread's table resolves.
SPREAD_RANGE = (2.0**LOWEST_ULP_EXPONENT, 2.0 ** (LOWEST_ULP_EXPONENT + BINS // 8) * (1 - 2.0**-24))


class Word(NamedTuple):
    """The layout of a float: its integer type, the bits of the significand, the bias of the exponent."""

    integer: type[Any]
    shift: int
    bias: int

    @property
    def exponent_bits(self) -> int:
        """All bits of the exponent set."""
        return (2 * self.bias + 1) << self.shift


WORDS = {torch.float32: Word(np.int32, 23, 127), torch.float64: Word(np.int64, 52, 1023)}


class Buffer(NamedTuple):
    """One array under four names: floats and integers of the same size, of numpy and of torch."""

    floats: Floats
    integers: Ints
    tensor: Tensor
    integer_tensor: Tensor


@dataclass(frozen=True, slots=True)
class ChunkExtremes:
    """The extremes of a chunk: the largest error, and the smallest and largest expected magnitude."""

    furthest: float
    lowest: float
    highest: float


class Dense:
    """Adds chunks of ``size`` elements of one dtype (float32 or float64) to sums; used by one thread."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.size = size
        self.dtype = dtype
        self._word = WORDS[dtype]
        self._buffers = [_buffer(size, dtype, self._word) for _ in range(6)]
        self._mask = np.empty(size, np.bool_)
        self._is_exact = size <= EXACT_UP_TO

    def add(self, sums: Sums, actual: Tensor, expected: Tensor, start: int) -> bool:
        """Add a chunk (contiguous, on the CPU) to ``sums``; its first element is number ``start``.

        Returns False, with nothing added, if the chunk has NaN, Inf, or values that overflow in the format.
        """
        difference, error, magnitude, *_ = self._buffers
        np.subtract(actual.numpy(), expected.numpy(), out=difference.floats)
        np.abs(difference.floats, out=error.floats)
        np.abs(expected.numpy(), out=magnitude.floats)
        seen = ChunkExtremes(
            _largest(error.floats), float(np.minimum.reduce(magnitude.floats)), _largest(magnitude.floats)
        )
        if not (seen.furthest < math.inf and seen.highest <= sums.format.largest):
            return False
        if seen.furthest > sums.abs_max or sums.abs_argmax < 0:
            sums.abs_max, sums.abs_argmax = seen.furthest, start + int(error.floats.argmax())
        sums.count += self.size
        sums.expected_max = max(sums.expected_max, seen.highest)
        self._octaves_and_inverse(sums.format, seen)
        if not self._is_exact:
            self._note_beyond(sums, seen)
        if sums.block:
            self._add_blocks(sums)
        self._add_products(sums, actual, expected, seen)
        if seen.furthest:
            if not sums.is_beside:
                self._add_relative(sums, seen)
            self._add_ulps(sums, expected)
        return True

    def _add_spread(self, sums: Sums, ulps: Floats | None) -> None:
        """Add errors in ulp to the distribution: a few one by one, many by their bins."""
        octaves, word = self._buffers[3], self._word
        if self._is_exact:
            errors = np.zeros(self.size) if ulps is None else ulps.astype(np.float64)
            sums.spread.add(octaves.integers.astype(np.int64) // BINS, errors)
        elif ulps is None:
            sums.spread.count(octaves.integer_tensor)
        else:
            buffer = self._buffers[-1]
            buffer.tensor.clamp_(*SPREAD_RANGE)
            keys = np.right_shift(buffer.integers, word.shift - 3, out=buffer.integers)
            keys -= (word.bias + LOWEST_ULP_EXPONENT) << 3
            keys += octaves.integers
            sums.spread.count(buffer.integer_tensor)

    def _note_beyond(self, sums: Sums, seen: ChunkExtremes) -> None:
        """Keep errors too large for the spread's bins: the expected value is then much smaller than the error."""
        _, error, magnitude, octaves, *_ = self._buffers
        bound = seen.furthest * 2.0**sums.format.digits / BEYOND_ULPS
        if seen.lowest < bound:
            places = np.flatnonzero((magnitude.floats < bound) & (error.floats > 0))
            inverse = octaves_and_inverse(magnitude.floats[places].astype(np.float64), sums.format)[1]
            ulps = error.floats[places].astype(np.float64) * inverse * 2.0 ** (sums.format.digits - 2)
            sums.spread.note_beyond(octaves.integers[places] // BINS, ulps)

    def _add_products(self, sums: Sums, actual: Tensor, expected: Tensor, seen: ChunkExtremes) -> None:
        difference, error, *_ = self._buffers
        ours, theirs = actual.numpy(), expected.numpy()
        square = _dot(theirs, theirs)
        sums.expected_square_sum += square
        if seen.furthest:
            sums.square_sum += _dot(difference.floats, difference.floats)
            if not sums.is_beside:
                sums.actual_square_sum += _dot(ours, ours)
                sums.product_sum += _dot(ours, theirs)
                sums.abs_sum += _sum(error.tensor)
        else:
            sums.actual_square_sum += square
            sums.product_sum += square
            sums.within = [each + self.size for each in sums.within]
            self._add_spread(sums, None)

    def _add_relative(self, sums: Sums, seen: ChunkExtremes) -> None:
        _, error, magnitude, *_, ratio = self._buffers
        np.divide(error.floats, magnitude.floats, out=ratio.floats)
        if seen.lowest == 0:
            ratio.floats[(magnitude.floats == 0) & (error.floats == 0)] = 0
        largest = _largest(ratio.floats)
        sums.rel_sum += _sum(ratio.tensor)
        sums.rel_max = max(sums.rel_max, largest)
        for place, share in enumerate(SHARES):
            within = self.size
            if largest > share:
                within = int(np.count_nonzero(np.less_equal(ratio.floats, share, out=self._mask)))
            sums.within[place] += within

    def _add_ulps(self, sums: Sums, expected: Tensor) -> None:
        """Add errors in ulp, signed and unsigned; the last step, since it overwrites the other arrays."""
        signed, sign, _, _, inverse, ulps = self._buffers
        np.multiply(signed.floats, inverse.floats, out=signed.floats)
        np.multiply(signed.floats, signed.floats.dtype.type(2.0 ** (sums.format.digits - 2)), out=signed.floats)
        np.abs(signed.floats, out=ulps.floats)
        sums.ulp_max = max(sums.ulp_max, _largest(ulps.floats))
        sums.ulp_sum += _sum(ulps.tensor)
        sums.ulp_square_sum += _dot(ulps.floats, ulps.floats)
        signed.tensor.clamp_(-1, 1)
        sums.upward_sum += float(signed.tensor.sum())
        np.sign(expected.numpy(), out=sign.floats)
        sums.outward_sum += products(signed.floats, sign.floats)
        self._add_spread(sums, ulps.floats)

    def _octaves_and_inverse(self, form: Format, seen: ChunkExtremes) -> None:
        """Compute, for each expected value, BINS times the number of its octave, and the reciprocal of its ulp.

        The latter is divided by ``2 ** (digits - 2)``, so that it stays finite for the smallest ulp.
        """
        _, _, magnitude, octaves, inverse, _ = self._buffers
        word, raised = self._word, octaves.integers
        np.bitwise_and(magnitude.integers, word.exponent_bits, out=raised)
        bounded = raised
        if seen.lowest < 2.0**form.emin:
            floor = max(form.emin + word.bias, 1) << word.shift
            bounded = np.maximum(raised, floor, out=inverse.integers)
        np.subtract(word.exponent_bits, bounded, out=inverse.integers)
        np.right_shift(raised, word.shift, out=raised)
        raised += ZERO_EXPONENT - word.bias
        if seen.lowest < 2.0 ** (1 - word.bias):
            raised[np.less_equal(raised, ZERO_EXPONENT - word.bias, out=self._mask)] = 0
        raised *= BINS

    def _add_blocks(self, sums: Sums) -> None:
        _, error, _, _, inverse, ulps = self._buffers
        np.divide(ulps.floats.dtype.type(2.0 ** (2 - sums.format.digits)), inverse.floats, out=ulps.floats)
        errors, roundings = (each.astype(np.float64) for each in (error.floats, ulps.floats))
        sums.blocks.append((mean_squares(errors, sums.block), mean_squares(roundings, sums.block)))


def _buffer(size: int, dtype: torch.dtype, word: Word) -> Buffer:
    tensor = torch.empty(size, dtype=dtype, device="cpu")
    floats = tensor.numpy()
    integers = floats.view(word.integer)
    return Buffer(floats, integers, tensor, torch.from_numpy(integers))


def _largest(values: Floats) -> float:
    return float(np.maximum.reduce(values))


def _dot(one: Floats, other: Floats) -> float:
    total = products(one, other)
    if one.dtype == np.float32 and not SAFE[0] < abs(total) < SAFE[1]:
        total = products(one.astype(np.float64), other.astype(np.float64))
    return total


def products(one: Floats, other: Floats) -> float:
    """Sum the products in parts too small for BLAS to use threads of its own, which would slow down ours."""
    whole = one.size // PART * PART
    parts = np.matmul(one[:whole].reshape(-1, 1, PART), other[:whole].reshape(-1, PART, 1))
    return float(np.add.reduce(parts, axis=None, dtype=np.float64)) + float(one[whole:].dot(other[whole:]))


def _sum(values: Tensor) -> float:
    total = float(values.sum())
    return total if total < math.inf else float(values.sum(dtype=torch.float64))


def mean_squares(values: Floats, block: int) -> Floats:
    """Return the mean square of every ``block`` values, and of what is left at the end."""
    whole = values.size // block * block
    rest = values[whole:]
    means = (values[:whole].reshape(-1, block) ** 2).mean(axis=1) if whole else rest[:0]
    return np.append(means, rest.dot(rest) / rest.size) if rest.size else means
