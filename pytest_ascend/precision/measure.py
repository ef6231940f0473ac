"""One pass over actual, expected and honest results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
#: From so many elements on, several threads share the work.
PARALLEL_FROM, MOST_THREADS = 1 << 21, 4
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

    def merge(self, other: Measurement) -> None:
        """Take in what another pass has found of the elements that follow."""
        self.actual.merge(other.actual)
        for ours, theirs in zip(self.honest, other.honest, strict=True):
            ours.merge(theirs)
        self.nonfinite.merge(other.nonfinite)


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
    tensors = [actual, expected, *honest]
    work = work_dtype(tensors)
    size = CHUNK if work is torch.float32 else CHUNK // 2
    if observer is None and actual.numel() >= PARALLEL_FROM and all(map(_is_flat, tensors)):
        _measure_in_threads(found, tensors, work, size)
    else:
        _measure_range(found, tensors, work, size, 0)
    return found


def _measure_range(
    found: Measurement, tensors: Sequence[torch.Tensor], work: torch.dtype, size: int, start: int
) -> None:
    """Take in tensors whose first element is number ``start``."""
    with np.errstate(all="ignore"):
        for piece in pieces(tensors, size):
            arrays = [each.to(work).numpy() for each in piece]
            add_chunk(found, arrays, start)
            start += arrays[0].size


def _measure_in_threads(found: Measurement, tensors: Sequence[torch.Tensor], work: torch.dtype, size: int) -> None:
    """Take in a part of the tensors in each thread; numpy computes without holding the interpreter's lock."""
    flat = [each.reshape(-1) for each in tensors]
    length = flat[0].numel()
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    share = -(-length // threads // size) * size
    starts = range(0, length, max(share, size))
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(
            lambda start: _part(found, [each[start : start + share] for each in flat], work, size, start), starts
        )
        for part in parts:
            found.merge(part)


def _part(whole: Measurement, tensors: Sequence[torch.Tensor], work: torch.dtype, size: int, start: int) -> Measurement:
    form, block = whole.actual.format, whole.actual.block
    part = Measurement(Sums(form, block=block), [Sums(form, block=block) for _ in whole.honest], Nonfinite())
    _measure_range(part, tensors, work, size, start)
    return part


def _is_flat(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


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
