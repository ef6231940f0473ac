"""The published rule that compares a device's errors with those of a second device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.judge import Finding
from pytest_ascend.precision.measure import Measurement

Floats: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = Mapping[str, float]


@dataclass(slots=True)
class Tally:
    """Errors of one side. Values below ``small_value`` are counted apart: by share, where off by ``small_atol``."""

    numbers: Numbers
    count: int = 0
    square_sum: float = 0.0
    usual: int = 0
    rel_sum: float = 0.0
    rel_max: float = 0.0
    small_off: int = 0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk (float64)."""
        error, magnitude = np.abs(actual - expected), np.abs(expected)
        is_small = magnitude < self.numbers["small_value"]
        ratio = error[~is_small] / magnitude[~is_small]
        self.count += error.size
        self.square_sum += float(error.dot(error))
        self.usual += ratio.size
        self.rel_sum += float(ratio.sum())
        self.rel_max = max(self.rel_max, float(ratio.max(initial=0.0)))
        self.small_off += int(np.count_nonzero(error[is_small] > self.numbers["small_atol"]))

    def figures(self) -> dict[str, float]:
        """Return what is compared with the other side's, by the name of its limit."""
        return {
            "max_rel": self.rel_max,
            "mean_rel": self.rel_sum / max(self.usual, 1),
            "rmse": math.sqrt(self.square_sum / max(self.count, 1)),
            "small": self.small_off / max(self.count - self.usual, 1),
        }


#: Figures that are compared with a second device's.
_RATIOS = {
    "max_rel": "largest relative error",
    "mean_rel": "mean relative error",
    "rmse": "RMSE",
    "small": "share of small values that are off",
}
#: What a share counts as, where the second device has none.
_FROM_NOTHING = 10_000.0


@dataclass(slots=True)
class Ratio:
    """The device's errors over those of a second device in the same dtype, which ``honest`` stands for."""

    numbers: Numbers
    form: Format
    sides: list[Tally] = field(default_factory=list)

    def add(self, actual: Floats, expected: Floats, *honest: Floats) -> None:
        """Take in a chunk; of the second device only what is finite."""
        if not honest:
            raise UsageError(
                "standard benchmark-ratio needs the result of a second device",
                hint="give honest=..., the same function run on the CPU in the same dtype",
            )
        self.sides = self.sides or [Tally(self.numbers), Tally(self.numbers)]
        self.sides[0].add(actual, expected)
        finite = np.isfinite(honest[0])
        self.sides[1].add(honest[0][finite], expected[finite])

    def finding(self, _found: Measurement) -> Finding:
        """Each figure against the other's, which counts as no less than the floor."""
        ours, theirs = (side.figures() for side in self.sides or [Tally(self.numbers), Tally(self.numbers)])
        findings = [
            Finding(
                rule=f"{title}, as a multiple of the second device's",
                value=self._ratio(key, ours[key], theirs[key]),
                limit=self.numbers[key],
            )
            for key, title in _RATIOS.items()
        ]
        return max(findings, key=lambda each: each.used)

    def _ratio(self, key: str, ours: float, theirs: float) -> float:
        if key != "small":
            return ours / max(theirs, self.numbers["floor"])
        if theirs == 0:
            return _FROM_NOTHING if ours else 1.0
        return ours / theirs
