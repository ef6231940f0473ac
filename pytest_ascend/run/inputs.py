"""Inputs and weights that are identical on every CPU, operating system and version of torch and numpy.

Element ``i`` of the stream ``key`` is a hash of both, or of its position in a table. Nothing depends on torch's
generators, whose streams differ between versions and devices. Values are integers with one exact scaling or correctly
rounded multiplication: no logarithm or cosine, whose last bits differ between libraries.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Each = TypeVar("Each")
Words: TypeAlias = npt.NDArray[np.uint64]
Array: TypeAlias = npt.NDArray[Any]
#: Maps words to numbers, or numbers to other numbers.
Change: TypeAlias = Callable[[Array], Array]
#: SplitMix64: the step of its counter, then the two multipliers and three shifts of its finaliser. Source: G. Steele,
#: D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with D. Stafford's variant 13.
STEP = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
#: A stream whose key starts with this prefix is a slice of a table of this many words, at a position that depends on
#: key and length: hashing each word would take a tenth of the time of generated calls.
FROM_TABLE, TABLE = "sweep/", 1 << 20
#: Words per chunk, so that temporaries stay in a core's cache.
CHUNK = 1 << 15
#: The first multiples of the step, modulo 2**64.
_MULTIPLES = np.arange(1, CHUNK + 1, dtype=np.uint64) * STEP
#: The standard deviation of the sum of four independent integers uniform below 2**16.
STD_OF_SUM = math.sqrt((2**32 - 1) / 3)
#: torch's dtypes for numpy's.
_TORCH = {np.float32: torch.float32, np.int64: torch.int64}
#: Mask of the lower half of each half of a word.
LOW_HALVES = np.uint64(0x0000FFFF0000FFFF)


def words(key: str, count: int, *, start: int = 0) -> Words:
    """Return ``count`` 64-bit words of the stream ``key``, from position ``start`` on."""
    first = np.uint64((_place(key) + start * int(STEP)) % 2**64)
    multiples = _MULTIPLES[:count] if count <= CHUNK else np.arange(1, count + 1, dtype=np.uint64) * STEP
    return mix(multiples + first)


def _place(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")


class Chance:
    """Choices that depend on a key alone."""

    def __init__(self, key: str) -> None:
        block = 32
        chunks = (words(key, block, start=start).tolist() for start in itertools.count(0, block))
        self._words: Iterator[int] = itertools.chain.from_iterable(chunks)

    def below(self, count: int) -> int:
        """Return an integer from 0 to ``count`` - 1."""
        return (next(self._words) >> 33) % count

    def of(self, choices: Sequence[Each]) -> Each:
        """Return one of these."""
        return choices[self.below(len(choices))]


def mix(words: Words) -> Words:
    """Hash each word in place, by a bijection, and return the array."""
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        words ^= words >> shift
        words *= multiplier
    words ^= words >> SHIFTS[2]
    return words


def uniform(
    key: str, shape: Sequence[int], *, low: float = -1.0, high: float = 1.0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return uniformly distributed values in [low, high], on the CPU.

    They are multiples of 2**-23 of half the range, computed in float32 with one multiplication and one addition, then
    rounded to ``dtype``. With the default range they are exact, and never 1.
    """
    scale, centre = np.float32((high - low) / 2) * np.float32(2**-23), np.float32((high + low) / 2)
    return _tensor(key, shape, _level, lambda numbers: numbers * scale + centre, np.float32).to(dtype)


def normal(key: str, shape: Sequence[int], *, std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return almost normally distributed values of mean 0: sums of four uniform ones, at most 3.47 std in magnitude.

    The sum is an exact integer; it is scaled by one float32 multiplication, then rounded to ``dtype``.
    """
    scale = np.float32(std / STD_OF_SUM)
    return _tensor(key, shape, _bell, lambda numbers: numbers * scale, np.float32).to(dtype)


def integers(key: str, shape: Sequence[int], *, low: int, high: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return integers in [low, high), on the CPU. Raises ValueError for an empty range or one above 2**32."""
    if not 0 < high - low <= 2**32:
        raise ValueError(f"no integers to draw from [{low}, {high})")
    count = np.uint64(high - low)
    drawn = _tensor(key, shape, _halves, lambda halves: (halves * count) >> np.uint64(32), np.int64)
    return drawn.add_(low).to(dtype)


def rising(key: str, shape: Sequence[int], *, dim: int, high: int) -> Tensor:
    """Return integers from 1 to ``high`` on the CPU, with the second half along a dimension negative."""
    made, half = integers(key, shape, low=1, high=high + 1), shape[dim] // 2
    made.narrow(dim, half, shape[dim] - half).neg_()
    return made


def permutation(key: str, count: int) -> Tensor:
    """Return the integers from 0 to ``count`` - 1 in an order given by the key, on the CPU."""
    if not count:
        return torch.empty(0, dtype=torch.int64)
    # torch sorts integers by radix; torch 2.1 crashes on negative ones, and on 63 bits.
    return torch.frombuffer(words(key, count) >> np.uint64(4), dtype=torch.int64).argsort(stable=True)


def signs(key: str, count: int, *, start: int = 0) -> Tensor:
    """Return float64 values 1 or -1 with equal probability, using one bit of the stream for each.

    ``start`` is the position of the first, a multiple of 64.
    """
    return 1.0 - 2.0 * torch.frombuffer(_bits(key, count, start), dtype=torch.uint8).double()


def change_signs(values: Tensor, key: str, *, start: int = 0) -> None:
    """Multiply contiguous float64 values on the CPU in place by the result of :func:`signs`."""
    words = values.numpy().view(np.uint64)
    words ^= _bits(key, len(words), start).astype(np.uint64) << np.uint64(63)


def _bits(key: str, count: int, start: int) -> npt.NDArray[np.uint8]:
    data = words(key, -(-count // 64), start=start // 64).astype("<u8").view(np.uint8)
    return np.unpackbits(data, count=count, bitorder="little")


def _level(word: Words) -> Array:
    """Return float32 integers from -2**23 to 2**23 - 1."""
    out: Array = (word >> np.uint64(40)).astype(np.float32)  # 24 bits: exact
    out -= np.float32(2**23)
    return out


def _bell(word: Words) -> Array:
    """Return float32 integers around 0, each the sum of the four parts of a word."""
    pairs = (word & LOW_HALVES) + (word >> np.uint64(16) & LOW_HALVES)
    out: Array = ((pairs + (pairs >> np.uint64(32))) & np.uint64(0x3FFFF)).astype(np.float32)
    out -= np.float32(2 * 65535)
    return out


def _halves(word: Words) -> Words:
    halves: Words = word >> np.uint64(32)
    return halves


@functools.cache
def _table(numbers: Change) -> Array:
    return numbers(words("inputs/table", TABLE))


def _tensor(key: str, shape: Sequence[int], numbers: Change, finish: Change, kind: Any) -> Tensor:
    """Return a tensor of ``kind`` with ``finish(numbers(words))``, one word per element."""
    array, dtype = np.empty(math.prod(shape), dtype=kind), _TORCH[kind]
    if not array.size:
        return torch.empty(tuple(shape), dtype=dtype)
    if key.startswith(FROM_TABLE) and array.size <= TABLE // 2:
        first = _place(key) % (TABLE - array.size)
        array[:] = finish(_table(numbers)[first : first + array.size])
    else:
        for start in range(0, array.size, CHUNK):
            part = array[start : start + CHUNK]
            part[:] = finish(numbers(words(key, part.size, start=start)))
    # Via the buffer protocol: torch 2.1's from_numpy does not work with numpy 2.
    return torch.frombuffer(array, dtype=dtype).reshape(tuple(shape))
