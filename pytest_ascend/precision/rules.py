"""The published rules: each processes every chunk, and decides at the end whether it is broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.error_model import Finding
from pytest_ascend.precision.errors import Measurement, Observer
from pytest_ascend.precision.formats import Format
from pytest_ascend.records.verdict import Rule as Known
from pytest_ascend.system.errors import UsageError

Floats: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """One published rule during a pass: what it counts, and what returns the deciding finding after the pass."""

    finding: Callable[[Measurement], Finding]
    counted: Sequence[Observer] = ()

    def add(self, actual: Floats, expected: Floats, *reference_runs: Floats) -> None:
        """Process a chunk."""
        for each in self.counted:
            each.add(actual, expected, *reference_runs)


@dataclass(slots=True)
class Errors:
    """Errors beside a bound at each expected value: how many exceed it, and their sum and largest as multiples."""

    bound: Callable[[Floats], Floats]
    beyond: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        error, bound = np.abs(actual - expected), self.bound(expected)
        ratio = error / bound
        self.beyond += int(np.count_nonzero(error > bound))
        self.total += float(ratio.sum())
        self.largest = max(self.largest, float(ratio.max(initial=0.0)))


def relative(numbers: Numbers, _form: Format) -> Rule:
    """Mean and maximum of the relative error, whose denominator is the magnitude plus ``offset``.

    Both have to be below their limits; equal is too much.
    """
    errors = Errors(lambda expected: np.abs(expected) + numbers["offset"])
    limit, mean_limit = (math.nextafter(numbers[name], 0) for name in ("max", "mean"))

    def finding(found: Measurement) -> Finding:
        average = errors.total / max(found.actual.count, 1)
        mean = Finding(rule="mean relative error", value=average, limit=mean_limit)
        largest = Finding(
            rule="largest relative error",
            value=errors.largest,
            limit=limit,
            allowed=lambda expected: limit * errors.bound(expected),
        )
        return largest if largest.is_broken else max(mean, largest, key=lambda each: each.used)

    return Rule(finding, [errors])


def mixed(numbers: Numbers, form: Format) -> Rule:
    """A share of the elements within ``atol + rtol * abs(expected)``, and none beyond ``max(floor, ulps)``."""
    usual = _within_tolerances(numbers)
    far = Errors(lambda expected: np.maximum(numbers["floor"], numbers["ulps"] * form.ulp(np.abs(expected))))

    def finding(found: Measurement) -> Finding:
        rule = "error of one element, as a multiple of max(floor, 32 ulp)"
        furthest = Finding(rule=rule, value=far.largest, limit=1.0, allowed=far.bound)
        rule, share = "share of elements beyond atol + rtol * abs(expected)", usual.beyond / max(found.actual.count, 1)
        beyond = Finding(rule=rule, value=share, limit=1 - numbers["share"], allowed=usual.bound)
        return furthest if furthest.is_broken else max(furthest, beyond, key=lambda each: each.used)

    return Rule(finding, [usual, far])


def close(numbers: Numbers, _form: Format) -> Rule:
    """Every element within ``atol + rtol * abs(expected)``."""
    errors, rule = _within_tolerances(numbers), "error of one element, as a multiple of atol + rtol * abs(expected)"
    return Rule(lambda _: Finding(rule=rule, value=errors.largest, limit=1.0, allowed=errors.bound), [errors])


def _within_tolerances(numbers: Numbers) -> Errors:
    return Errors(lambda expected: numbers["atol"] + numbers["rtol"] * np.abs(expected))


def ulp(numbers: Numbers, form: Format) -> Rule:
    """A share of the elements beyond a number of ulp, or (if the standard has one) the mean error in ulp.

    A low mean suffices, as does a low share.
    """
    errors = Errors(lambda expected: numbers["ulps"] * form.ulp(np.abs(expected)))
    limit, rule = math.nextafter(numbers["share"], 0), f"share of elements beyond {numbers['ulps']:g} ulp"

    def finding(found: Measurement) -> Finding:
        count = max(found.actual.count, 1)
        share = Finding(rule=rule, value=errors.beyond / count, limit=limit, allowed=errors.bound)
        mean = Finding(rule="mean error in ulp", value=found.actual.ulp_sum / count, limit=numbers["mean"])
        return mean if share.is_broken and not mean.is_broken else share

    return Rule(finding, [errors])


def thousandth(numbers: Numbers, _form: Format) -> Rule:
    """A share of the elements with a relative error of at most 0.1 %, which the sums have."""

    def finding(found: Measurement) -> Finding:
        rule, count = "share of elements beyond 0.1 %", found.actual.count
        share, limit = 1 - found.actual.within[0] / count if count else 0.0, 1 - numbers["share"]
        return Finding(rule=rule, value=share, limit=limit, allowed=lambda expected: 0.001 * np.abs(expected))

    return Rule(finding)


@dataclass(slots=True)
class Unequal:
    """Elements whose bits differ: zeros of different sign do."""

    count: int = 0

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        self.count += int(np.count_nonzero((actual != expected) | (np.signbit(actual) != np.signbit(expected))))


def binary(numbers: Numbers, _form: Format) -> Rule:
    """Bitwise equality: one element is enough."""
    unequal, limit = Unequal(), numbers["elements"]
    return Rule(
        lambda _: Finding(rule=Known.UNEQUAL_BITS, value=float(unequal.count), limit=limit, allowed=np.zeros_like),
        [unequal],
    )


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
class Sides:
    """The device's errors, and those of a second device in the same dtype, which ``reference_runs`` stands for."""

    ours: Tally
    theirs: Tally

    def add(self, actual: Floats, expected: Floats, *reference_runs: Floats) -> None:
        """Process a chunk; of the second device only finite values."""
        if not reference_runs:
            raise UsageError(
                "standard benchmark-ratio needs the result of a second device",
                hint="give reference_runs=..., the same function run on the CPU in the same dtype",
            )
        self.ours.add(actual, expected)
        finite = np.isfinite(reference_runs[0])
        self.theirs.add(reference_runs[0][finite], expected[finite])


def ratio(numbers: Numbers, _form: Format) -> Rule:
    """The device's errors over those of a second device, each of which counts as at least the floor."""
    sides = Sides(Tally(numbers), Tally(numbers))

    def compared(key: str, title: str) -> Finding:
        ours, theirs = sides.ours.figures()[key], sides.theirs.figures()[key]
        if key != "small":
            value = ours / max(theirs, numbers["floor"])
        elif theirs:
            value = ours / theirs
        else:
            value = _FROM_NOTHING if ours else 1.0
        return Finding(rule=f"{title}, as a multiple of the second device's", value=value, limit=numbers[key])

    def finding(_: Measurement) -> Finding:
        return max((compared(*each) for each in _RATIOS.items()), key=lambda each: each.used)

    return Rule(finding, [sides])


#: The rules that a row of the table of standards can name.
RULES: Mapping[str, Callable[[Numbers, Format], Rule]] = {
    each.__name__: each for each in (relative, mixed, close, ulp, thousandth, ratio, binary)
}
