"""One pass over actual, expected and honest results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pytest_ascend.precision.chunks import pieces
from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.nonfinite import FINITE, Nonfinite, classes, classes_in
from pytest_ascend.precision.sums import Sums

Floats: TypeAlias = npt.NDArray[Any]

#: Elements of a chunk, so that its arrays stay in a core's cache.
CHUNK = 1 << 15
#: Below this, every figure is computed in float64, whatever the inputs are.
WIDE_UP_TO = 1 << 16


class Observer(Protocol):
    """Something that looks at every chunk, too."""

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk of finite pairs (float64)."""


@dataclass(slots=True)
class Measurement:
    """What one pass found: the device's sums, those of each honest result, and what was not finite."""

    actual: Sums
    honest: list[Sums]
    nonfinite: Nonfinite
    observer: Observer | None = None


def measure(
    actual: torch.Tensor,
    expected: torch.Tensor,
    honest: Sequence[torch.Tensor],
    form: Format,
    observer: Observer | None = None,
) -> Measurement:
    """Measure real floating-point tensors of equal shape; ``form`` is the format that ulps are counted in."""
    block = block_size(actual.numel()) if honest else 0
    found = Measurement(Sums(form, block=block), [Sums(form, block=block) for _ in honest], Nonfinite(), observer)
    work = work_dtype([actual, expected, *honest])
    size = CHUNK if work is torch.float32 else CHUNK // 2
    start = 0
    with np.errstate(all="ignore"):
        for piece in pieces([actual, expected, *honest], size):
            arrays = [each.to(work).numpy() for each in piece]
            add_chunk(found, arrays, start)
            start += arrays[0].size
    return found


def block_size(elements: int) -> int:
    """Neighbours that are looked at together: at least 256, and so many that there are at most 2**17 blocks."""
    return max(256, 1 << (max(elements - 1, 1) >> 17).bit_length())


def work_dtype(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Give float32 where it holds all the inputs exactly and they are many, else float64."""
    if tensors[0].numel() <= WIDE_UP_TO or any(each.dtype is torch.float64 for each in tensors):
        return torch.float64
    return torch.float32


def add_chunk(found: Measurement, arrays: Sequence[Floats], start: int) -> None:
    """Take in a chunk: actual, expected and each honest result as flat arrays of one dtype."""
    actual, expected, *honest = arrays
    if not found.actual.add(actual, expected, start):
        _add_special(found, [each.astype(np.float64) for each in arrays], start)
        return
    if found.observer is not None:
        found.observer.add(actual.astype(np.float64, copy=False), expected.astype(np.float64, copy=False))
    for sums, values in zip(found.honest, honest, strict=True):
        if not sums.add(values, expected, start):
            _add_finite(sums, values.astype(np.float64), expected.astype(np.float64), start)


def _add_special(found: Measurement, arrays: Sequence[Floats], start: int) -> None:
    actual, expected, *honest = arrays
    found.nonfinite.add(actual, expected, honest, found.actual.format, start)
    _add_finite(found.actual, actual, expected, start)
    if found.observer is not None:
        finite = (classes(actual) == FINITE) & (classes_in(expected, found.actual.format) == FINITE)
        found.observer.add(actual[finite], expected[finite])
    for sums, values in zip(found.honest, honest, strict=True):
        _add_finite(sums, values, expected, start)


def _add_finite(sums: Sums, actual: Floats, expected: Floats, start: int) -> None:
    """Take in the pairs in which both are finite (float64)."""
    places = np.flatnonzero((classes(actual) == FINITE) & (classes_in(expected, sums.format) == FINITE))
    sums.add(actual[places], expected[places], start, places)
    if sums.block:
        unknown = np.zeros(-(-actual.size // sums.block))
        sums.blocks.append((unknown, unknown))
