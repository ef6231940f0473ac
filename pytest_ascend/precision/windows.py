"""Sums and maxima over a place and its neighbours, of short arrays and with few calls."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

Floats: TypeAlias = npt.NDArray[Any]


def sliding_sum(values: Floats, half_width: int) -> Floats:
    """Sum over each place and its neighbours up to ``half_width`` away."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.add.reduce(values))
    return np.convolve(values, np.ones(2 * half_width + 1))[half_width : half_width + values.size]


def sliding_max(values: Floats, half_width: int) -> Floats:
    """Maximum over each place and its neighbours up to ``half_width`` away; of values that are not negative."""
    if half_width == 0:
        return values
    if half_width >= values.size - 1:
        return np.full(values.shape, np.maximum.reduce(values))
    padded = np.zeros(values.size + 2 * half_width)
    padded[half_width : half_width + values.size] = values
    step = padded.strides[0]
    windows = as_strided(padded, (values.size, 2 * half_width + 1), (step, step))
    largest: Floats = np.maximum.reduce(windows, axis=1)
    return largest
