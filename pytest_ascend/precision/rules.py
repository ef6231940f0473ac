"""The published rules: each processes every chunk, and decides at the end whether it is broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.errors import Measurement
from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.limits import Finding
from pytest_ascend.records.verdict import Rule as Known
from pytest_ascend.system.errors import UsageError

Floats: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = Mapping[str, float]


class Rule(Protocol):
    """One published rule during a pass."""

    def add(self, actual: Floats, expected: Floats, *reference_runs: Floats) -> None:
        """Process a chunk of finite pairs (float64), with the reference runs there, finite or not."""

    def finding(self, found: Measurement) -> Finding:
        """Return, after the pass, the deciding finding."""


@dataclass(slots=True)
class Relative:
    """Mean and maximum of the relative error, whose denominator is the magnitude plus ``offset``."""

    numbers: Numbers
    form: Format
    total: float = 0.0
    largest: float = 0.0

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        ratio = np.abs(actual - expected) / (np.abs(expected) + self.numbers["offset"])
        self.total += float(ratio.sum())
        self.largest = max(self.largest, float(ratio.max(initial=0.0)))

    def finding(self, found: Measurement) -> Finding:
        """Both have to be below their limits; equal is too much."""
        limit, offset = math.nextafter(self.numbers["max"], 0), self.numbers["offset"]
        mean = Finding(
            rule="mean relative error",
            value=self.total / max(found.actual.count, 1),
            limit=math.nextafter(self.numbers["mean"], 0),
        )
        largest = Finding(
            rule="largest relative error",
            value=self.largest,
            limit=limit,
            allowed=lambda expected: limit * (np.abs(expected) + offset),
        )
        return largest if largest.is_broken else max(mean, largest, key=lambda each: each.used)


@dataclass(slots=True)
class Mixed:
    """A share of the elements within ``atol + rtol * abs(expected)``, and none beyond ``max(floor, ulps)``."""

    numbers: Numbers
    form: Format
    outside: int = 0
    furthest: float = 0.0

    def _bound(self, expected: Floats) -> Floats:
        return np.maximum(self.numbers["floor"], self.numbers["ulps"] * self.form.ulp(np.abs(expected)))

    def _usual(self, expected: Floats) -> Floats:
        bound: Floats = self.numbers["atol"] + self.numbers["rtol"] * np.abs(expected)
        return bound

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        error = np.abs(actual - expected)
        self.outside += int(np.count_nonzero(error > self._usual(expected)))
        self.furthest = max(self.furthest, float((error / self._bound(expected)).max(initial=0.0)))

    def finding(self, found: Measurement) -> Finding:
        """Far elements first: one of them is enough."""
        rule = "error of one element, as a multiple of max(floor, 32 ulp)"
        far = Finding(rule=rule, value=self.furthest, limit=1.0, allowed=self._bound)
        rule = "share of elements beyond atol + rtol * abs(expected)"
        share = self.outside / max(found.actual.count, 1)
        usual = Finding(rule=rule, value=share, limit=1 - self.numbers["share"], allowed=self._usual)
        return far if far.is_broken else max(far, usual, key=lambda each: each.used)


@dataclass(slots=True)
class Close:
    """Every element within ``atol + rtol * abs(expected)``."""

    numbers: Numbers
    form: Format
    furthest: float = 0.0

    def _bound(self, expected: Floats) -> Floats:
        bound: Floats = self.numbers["atol"] + self.numbers["rtol"] * np.abs(expected)
        return bound

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        ratio = np.abs(actual - expected) / self._bound(expected)
        self.furthest = max(self.furthest, float(ratio.max(initial=0.0)))

    def finding(self, _found: Measurement) -> Finding:
        """One element beyond is enough."""
        rule = "error of one element, as a multiple of atol + rtol * abs(expected)"
        return Finding(rule=rule, value=self.furthest, limit=1.0, allowed=self._bound)


@dataclass(slots=True)
class Ulp:
    """A share of the elements beyond a number of ulp, or (if the standard has one) the mean error in ulp."""

    numbers: Numbers
    form: Format
    beyond: int = 0

    def _bound(self, expected: Floats) -> Floats:
        return self.numbers["ulps"] * self.form.ulp(np.abs(expected))

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        self.beyond += int(np.count_nonzero(np.abs(actual - expected) > self._bound(expected)))

    def finding(self, found: Measurement) -> Finding:
        """A low mean suffices, as does a low share."""
        count = max(found.actual.count, 1)
        ulps, limit = self.numbers["ulps"], math.nextafter(self.numbers["share"], 0)
        rule = f"share of elements beyond {ulps:g} ulp"
        share = Finding(rule=rule, value=self.beyond / count, limit=limit, allowed=self._bound)
        mean = Finding(rule="mean error in ulp", value=found.actual.ulp_sum / count, limit=self.numbers["mean"])
        return mean if share.is_broken and not mean.is_broken else share


@dataclass(slots=True)
class Thousandth:
    """A share of the elements with a relative error of at most 0.1 %."""

    numbers: Numbers
    form: Format

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Do nothing: the sums have what is needed."""

    def finding(self, found: Measurement) -> Finding:
        """Compare the share of the elements beyond."""
        return Finding(
            rule="share of elements beyond 0.1 %",
            value=1 - found.actual.within[0] / max(found.actual.count, 1) if found.actual.count else 0.0,
            limit=1 - self.numbers["share"],
            allowed=lambda expected: 0.001 * np.abs(expected),
        )


@dataclass(slots=True)
class Binary:
    """Bitwise equality."""

    numbers: Numbers
    form: Format
    unequal: int = 0

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk; zeros of different sign differ."""
        differs = (actual != expected) | (np.signbit(actual) != np.signbit(expected))
        self.unequal += int(np.count_nonzero(differs))

    def finding(self, _found: Measurement) -> Finding:
        """One element is enough."""
        rule = Known.UNEQUAL_BITS
        return Finding(rule=rule, value=float(self.unequal), limit=self.numbers["elements"], allowed=np.zeros_like)


@dataclass(slots=True)
class Tally:
    """Errors of one side. Values below ``small_value`` are counted separately, if off by ``small_atol``."""

    numbers: Numbers
    count: int = 0
    square_sum: float = 0.0
    usual: int = 0
    rel_sum: float = 0.0
    rel_max: float = 0.0
    small_off: int = 0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Process a chunk (float64)."""
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
        """Return the figures compared with the other side's, by the names of their limits."""
        return {
            "max_rel": self.rel_max,
            "mean_rel": self.rel_sum / max(self.usual, 1),
            "rmse": math.sqrt(self.square_sum / max(self.count, 1)),
            "small": self.small_off / max(self.count - self.usual, 1),
        }


#: Figures compared with a second device's.
_RATIOS = {
    "max_rel": "largest relative error",
    "mean_rel": "mean relative error",
    "rmse": "RMSE",
    "small": "share of small values that are off",
}
#: The least share that a second device without any counts as.
_FROM_NOTHING = 10_000.0


@dataclass(slots=True)
class Ratio:
    """The device's errors over those of a second device in the same dtype, which ``reference_runs`` stands for."""

    numbers: Numbers
    form: Format
    sides: list[Tally] = field(default_factory=list)

    def add(self, actual: Floats, expected: Floats, *reference_runs: Floats) -> None:
        """Process a chunk; of the second device only finite values."""
        if not reference_runs:
            raise UsageError(
                "standard benchmark-ratio needs the result of a second device",
                hint="give reference_runs=..., the same function run on the CPU in the same dtype",
            )
        self.sides = self.sides or [Tally(self.numbers), Tally(self.numbers)]
        self.sides[0].add(actual, expected)
        finite = np.isfinite(reference_runs[0])
        self.sides[1].add(reference_runs[0][finite], expected[finite])

    def finding(self, _found: Measurement) -> Finding:
        """Compare each figure with the other's, which counts as at least the floor."""
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


#: The rules that a row of the table of standards can name.
RULES: Mapping[str, Callable[[Numbers, Format], Rule]] = {
    "relative": Relative,
    "mixed": Mixed,
    "close": Close,
    "ulp": Ulp,
    "thousandth": Thousandth,
    "ratio": Ratio,
    "binary": Binary,
}
