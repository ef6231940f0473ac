"""Where the wrong elements are, and what that usually means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pytest_ascend.precision.cause import causes
from pytest_ascend.precision.formats import dtype_name

Array: TypeAlias = npt.NDArray[Any]


@dataclass(slots=True)
class Sample:
    """Wrong elements: their places in row-major order and both values; ``total`` counts those left out, too."""

    shape: tuple[int, ...]
    dtype: str
    places: Array
    actual: Array
    expected: Array
    total: int = 0

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Sample:
        """Start an empty sample for a tensor."""
        nothing = np.zeros(0, np.int64)
        return cls(tuple(tensor.shape), dtype_name(tensor.dtype), nothing, nothing, nothing)

    @property
    def size(self) -> int:
        """How many wrong elements are held."""
        return int(self.places.size)

    @property
    def elements(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether every wrong element is held."""
        return self.size == self.total

    def add(self, places: Array, actual: Array, expected: Array) -> None:
        """Hold these as well."""
        first = not self.size
        self.places = np.concatenate([self.places, places])
        self.actual = actual if first else np.concatenate([self.actual, actual])
        self.expected = expected if first else np.concatenate([self.expected, expected])

    def of_total(self, total: int) -> Sample:
        """Say how many wrong elements there are."""
        return replace(self, total=total)


#: A looked-at place: where the wrong elements are.
Place: TypeAlias = Callable[["Sample"], str]


def pattern_of(sample: Sample) -> str:
    """Name the pattern and what it usually means; empty where there is none to see."""
    if not sample.total or not sample.size:
        return ""
    where = next(filter(None, (look(sample) for look in PLACES)), "scattered over the tensor")
    return "; ".join([where, *causes(sample.actual, sample.expected, sample.dtype)])


def _everywhere(sample: Sample) -> str:
    if sample.total == sample.elements:
        return "all elements"
    return f"nearly all elements ({sample.total} of {sample.elements})" if sample.total > 0.99 * sample.elements else ""


def _single(sample: Sample) -> str:
    return "a single element" if sample.total == 1 else ""


def _run(sample: Sample) -> str:
    """One block without gaps in memory order, at the end, at the start or within."""
    first, last = int(sample.places[0]), int(sample.places[-1])
    if not sample.is_whole or last - first + 1 != sample.total:
        return ""
    if last == sample.elements - 1:
        return f"the last {sample.total} elements: a tail that was not computed or not written"
    if first == 0:
        return f"the first {sample.total} elements"
    return f"one block of {sample.total} elements from element {first}"


def _slices(sample: Sample) -> str:
    """Whole rows, columns or planes: few different indices in one dimension."""
    if len(sample.shape) < 2 or not sample.is_whole:
        return ""
    for axis, (size, index) in enumerate(zip(sample.shape, np.unravel_index(sample.places, sample.shape), strict=True)):
        found = np.unique(index)
        if (
            found.size <= max(1, size // 4)
            and np.ptp(found) + 1 == found.size
            and sample.total >= 0.9 * found.size * (sample.elements // size)
        ):
            names = f"{found[0]}" if found.size == 1 else f"{found[0]} to {found[-1]}"
            return f"everything at index {names} of dimension {axis}"
    return ""


def _box(sample: Sample) -> str:
    """A rectangular block."""
    if len(sample.shape) < 2 or not sample.is_whole:
        return ""
    index = np.unravel_index(sample.places, sample.shape)
    ranges = [(int(each.min()), int(each.max()) + 1) for each in index]
    volume = int(np.prod([stop - start for start, stop in ranges]))
    if sample.total < 0.9 * volume or volume == sample.elements:
        return ""
    return f"the block [{', '.join(f'{start}:{stop}' for start, stop in ranges)}]"


def _every(sample: Sample) -> str:
    """The same distance from one to the next."""
    if sample.size < 3:
        return ""
    step = int(np.gcd.reduce(np.diff(sample.places)))
    first = int(sample.places[0])
    return f"every {step}th element from element {first % step}" if step > 1 else ""


def _one_index(sample: Sample) -> str:
    """Scattered, but all in one row, column or plane."""
    for axis, index in enumerate(np.unravel_index(sample.places, sample.shape) if len(sample.shape) > 1 else ()):
        if sample.size >= 4 and np.unique(index).size == 1:
            return f"only at index {int(index[0])} of dimension {axis}"
    return ""


#: From the most telling to the least.
PLACES: tuple[Place, ...] = (_single, _everywhere, _run, _slices, _box, _every, _one_index)
