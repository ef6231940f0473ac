"""Running sums over pairs of finite values, from which every figure follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt
import torch

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import Spread

Floats: TypeAlias = npt.NDArray[Any]

#: Relative errors whose share is counted, as is common: 0.1 %, 0.5 % and 1 %.
SHARES = (0.001, 0.005, 0.01)


#: Fields merged by their maximum, and by their sum.
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
    """Sums of one side (a device's values, or a reference run) against the expected values.

    Errors are ``abs(actual - expected)``; errors in ulp are divided by the unit in the last place of ``format`` at
    ``expected``. All sums are over finite pairs. ``outward`` counts an error away from zero as positive, ``upward`` one
    towards plus infinity, each as at most one ulp: their means show a wrong rounding mode.
    """

    format: Format
    #: Whether this is a reference run, of which only what the model needs is summed.
    is_beside: bool = False
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
    #: Elements in a block of neighbours; 0 without blocks.
    block: int = 0
    #: Mean square of the errors and of the ulp in each block, chunk by chunk; NaN in chunks with non-finite values.
    blocks: list[tuple[Floats, Floats]] = field(default_factory=list)

    def merge(self, other: Sums) -> None:
        """Add the sums over the elements that follow."""
        if other.abs_max > self.abs_max or self.abs_argmax < 0:
            self.abs_argmax = other.abs_argmax
        for name in MAXIMA:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.within = [ours + theirs for ours, theirs in zip(self.within, other.within, strict=True)]
        self.spread.merge(other.spread)


#: Elements in a piece copied from a device other than the CPU: few transfers, little memory.
FETCHED_AT_A_TIME = 1 << 20


def pieces(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Yield flat pieces of at most ``size`` elements of tensors of equal shape, in row-major order, on the CPU.

    Contiguous CPU tensors are not copied; of others, one piece at a time is.
    """
    if any(each.device.type != "cpu" for each in tensors) and size < FETCHED_AT_A_TIME:
        for fetched in pieces(tensors, FETCHED_AT_A_TIME):
            yield from _flat(fetched, size)
    elif all(each.is_contiguous() for each in tensors) or tensors[0].numel() <= size:
        yield from _flat([each.reshape(-1) for each in tensors], size)
    else:
        yield from _rows(tensors, size)


def _flat(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    length = tensors[0].numel()
    if length <= size:
        yield [each.cpu() for each in tensors]
        return
    for start in range(0, length, size):
        yield [each[start : start + size].cpu() for each in tensors]


def _rows(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Split along the first dimension; rows that are too large are split further."""
    rows, row = tensors[0].shape[0], tensors[0][0].numel()
    step = max(1, size // row)
    for start in range(0, rows, step):
        part = [each[start : start + step] for each in tensors]
        if row <= size:
            yield [each.reshape(-1).cpu() for each in part]
        else:
            yield from pieces([each[0] for each in part], size)
