"""The published rules: each tallies what it asks of every chunk, and says at the end whether it is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.formats import Format
from pytest_ascend.precision.judge import Finding
from pytest_ascend.precision.measure import Measurement
from pytest_ascend.precision.sums import Sums

Floats: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = Mapping[str, float]


class Rule(Protocol):
    """One published rule while a pass runs."""

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk of finite pairs (float64)."""

    def finding(self, found: Measurement) -> Finding | None:
        """Say what is broken when the pass is over, or None."""


@dataclass(slots=True)
class Relative:
    """Mean and maximum of the relative error, whose denominator is the magnitude plus ``offset``."""

    numbers: Numbers
    form: Format
    total: float = 0.0
    largest: float = 0.0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk."""
        ratio = np.abs(actual - expected) / (np.abs(expected) + self.numbers["offset"])
        self.total += float(ratio.sum())
        self.largest = max(self.largest, float(ratio.max(initial=0.0)))

    def finding(self, found: Measurement) -> Finding | None:
        """Both have to be below their limit."""
        mean = self.total / max(found.actual.count, 1)
        limit, offset = self.numbers["max"], self.numbers["offset"]
        if self.largest >= limit:
            return Finding(
                rule="largest relative error",
                value=self.largest,
                limit=limit,
                allowed=lambda expected: limit * (np.abs(expected) + offset),
            )
        if mean >= self.numbers["mean"]:
            return Finding(rule="mean relative error", value=mean, limit=self.numbers["mean"])
        return None


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

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk."""
        error = np.abs(actual - expected)
        self.outside += int(np.count_nonzero(error > self._usual(expected)))
        self.furthest = max(self.furthest, float((error / self._bound(expected)).max(initial=0.0)))

    def finding(self, found: Measurement) -> Finding | None:
        """The far elements first: one of them is enough."""
        if self.furthest > 1:
            rule = "error of one element, as a multiple of max(floor, 32 ulp)"
            return Finding(rule=rule, value=self.furthest, limit=1.0, allowed=self._bound)
        share = 1 - self.outside / max(found.actual.count, 1)
        if share < self.numbers["share"]:
            rule = "share of elements within atol + rtol * abs(expected)"
            return Finding(rule=rule, value=share, limit=self.numbers["share"], allowed=self._usual)
        return None


@dataclass(slots=True)
class Close:
    """Every element within ``atol + rtol * abs(expected)``."""

    numbers: Numbers
    form: Format
    furthest: float = 0.0

    def _bound(self, expected: Floats) -> Floats:
        bound: Floats = self.numbers["atol"] + self.numbers["rtol"] * np.abs(expected)
        return bound

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk."""
        self.furthest = max(self.furthest, float((np.abs(actual - expected) / self._bound(expected)).max(initial=0.0)))

    def finding(self, found: Measurement) -> Finding | None:
        """One element beyond is enough."""
        if self.furthest <= 1:
            return None
        rule = "error of one element, as a multiple of atol + rtol * abs(expected)"
        return Finding(rule=rule, value=self.furthest, limit=1.0, allowed=self._bound)


@dataclass(slots=True)
class Ulp:
    """A share of the elements beyond so many ulp, or (where the standard has one) the mean error in ulp."""

    numbers: Numbers
    form: Format
    beyond: int = 0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk."""
        ulps = np.abs(actual - expected) / self.form.ulp(np.abs(expected))
        self.beyond += int(np.count_nonzero(ulps > self.numbers["ulps"]))

    def finding(self, found: Measurement) -> Finding | None:
        """A low mean is as good as a low share."""
        share = self.beyond / max(found.actual.count, 1)
        mean = found.actual.ulp_sum / max(found.actual.count, 1)
        if share < self.numbers["share"] or share == 0 or mean < self.numbers["mean"]:
            return None
        ulps, form = self.numbers["ulps"], self.form
        return Finding(
            rule=f"share of elements beyond {ulps:g} ulp",
            value=share,
            limit=self.numbers["share"],
            allowed=lambda expected: ulps * form.ulp(np.abs(expected)),
        )


@dataclass(slots=True)
class Thousandth:
    """A share of the elements with a relative error of at most 0.1 %."""

    numbers: Numbers
    form: Format

    def add(self, actual: Floats, expected: Floats) -> None:
        """Nothing to take in: the sums have it."""

    def finding(self, found: Measurement) -> Finding | None:
        """Compare the share."""
        share = found.actual.within[0] / max(found.actual.count, 1)
        if share >= self.numbers["share"] or not found.actual.count:
            return None
        return Finding(
            rule="share of elements within 0.1 %",
            value=share,
            limit=self.numbers["share"],
            allowed=lambda expected: 0.001 * np.abs(expected),
        )


@dataclass(slots=True)
class Ratio:
    """The device's errors over those of a second device in the same dtype, which ``honest`` stands for."""

    numbers: Numbers
    form: Format

    def add(self, actual: Floats, expected: Floats) -> None:
        """Nothing to take in: the sums have it."""

    def finding(self, found: Measurement) -> Finding | None:
        """Each figure against the other's, which counts as no less than the floor."""
        if not found.honest:
            raise UsageError(
                "standard benchmark-ratio needs the result of a second device",
                hint="give honest=..., the same function run on the CPU in the same dtype",
            )
        for key, title in (
            ("max_rel", "largest relative error"),
            ("mean_rel", "mean relative error"),
            ("rmse", "RMSE"),
        ):
            value = _figure(found.actual, key) / max(_figure(found.honest[0], key), self.numbers["floor"])
            if value > self.numbers[key]:
                return Finding(
                    rule=f"{title}, as a multiple of the second device's", value=value, limit=self.numbers[key]
                )
        return None


def _figure(sums: Sums, key: str) -> float:
    count = max(sums.count, 1)
    return {"max_rel": sums.rel_max, "mean_rel": sums.rel_sum / count, "rmse": (sums.square_sum / count) ** 0.5}[key]


@dataclass(slots=True)
class Binary:
    """Bitwise equality."""

    numbers: Numbers
    form: Format
    unequal: int = 0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Take in a chunk; zeros of different sign differ."""
        differs = (actual != expected) | (np.signbit(actual) != np.signbit(expected))
        self.unequal += int(np.count_nonzero(differs))

    def finding(self, found: Measurement) -> Finding | None:
        """One element is enough."""
        if self.unequal <= self.numbers["elements"]:
            return None
        return Finding(
            rule="elements that are not bitwise equal",
            value=float(self.unequal),
            limit=self.numbers["elements"],
            allowed=np.zeros_like,
        )


#: What a row of the table of standards can name.
RULES: Mapping[str, Callable[[Numbers, Format], Rule]] = {
    "relative": Relative,
    "mixed": Mixed,
    "close": Close,
    "ulp": Ulp,
    "thousandth": Thousandth,
    "ratio": Ratio,
    "binary": Binary,
}
