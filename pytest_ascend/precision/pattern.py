"""Where the wrong elements are, and what that usually means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

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

    def add(self, places: Array, actual: Array, expected: Array) -> None:
        """Hold these as well."""
        first = not self.size
        self.places = np.concatenate([self.places, places])
        self.actual = actual if first else np.concatenate([self.actual, actual])
        self.expected = expected if first else np.concatenate([self.expected, expected])

    def of_total(self, total: int) -> Sample:
        """Say how many wrong elements there are."""
        return replace(self, total=total)


def pattern_of(sample: Sample) -> str:
    """Name the pattern; empty where there is none to see."""
    return ""
