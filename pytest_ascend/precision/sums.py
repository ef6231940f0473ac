"""What a pass over two tensors knows: running sums over pairs of finite values, from which every figure follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.spread import Spread

Floats: TypeAlias = npt.NDArray[Any]

#: Relative errors whose share is counted, as the field reports them: 0.1 %, 0.5 % and 1 %.
SHARES = (0.001, 0.005, 0.01)


#: Fields that are joined by their maximum, and by their sum.
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
    """What a pass knows so far of one side (a device's values, or an honest result) against what was expected.

    Errors are ``abs(actual - expected)``; errors in ulp are divided by the unit in the last place of ``format`` at
    ``expected``. All sums are over finite pairs. ``outward`` counts an error away from zero as positive,
    ``upward`` one towards plus infinity, and none as more than one ulp: their means show a wrong rounding mode.
    """

    format: Format
    #: Whether this is an honest result: of few elements, only what the model asks of one is summed.
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
    #: Elements in a block of neighbours; 0 where blocks are not asked for.
    block: int = 0
    #: Mean square of the errors and of the ulp in each block, chunk by chunk; NaN in chunks that are not all finite.
    blocks: list[tuple[Floats, Floats]] = field(default_factory=list)

    def merge(self, other: Sums) -> None:
        """Take in what another pass has summed of the elements that follow."""
        if other.abs_max > self.abs_max or self.abs_argmax < 0:
            self.abs_argmax = other.abs_argmax
        for name in MAXIMA:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.within = [ours + theirs for ours, theirs in zip(self.within, other.within, strict=True)]
        self.spread.merge(other.spread)
