"""NaN and Inf: at the same places, with the same sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_ascend.precision.formats import Format

Floats: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

#: What a value is, apart from how much.
FINITE, NAN, PLUS_INF, MINUS_INF = range(4)
NAMES = ("a number", "NaN", "+Inf", "-Inf")


@dataclass(slots=True)
class Nonfinite:
    """Counts of NaN and Inf on both sides, and of the places where the sides differ in them."""

    nan_actual: int = 0
    nan_expected: int = 0
    inf_actual: int = 0
    inf_expected: int = 0
    mismatches: int = 0
    first: int = -1
    first_is: tuple[int, int] = (FINITE, FINITE)
    #: Places of NaN that honest results have as well, where a number is expected; and the first of them.
    shared_nan: int = 0
    first_shared: int = -1

    def explains_nan(self, form: Format) -> bool:
        """Whether an overflow, or what was not finite before, may have led to NaN where a number is expected."""
        return form.has_short_range or self.nan_expected > 0 or self.inf_expected > 0

    def settle(self, form: Format) -> None:
        """Count, at the end, NaN that honest results share as mismatches where nothing explains them."""
        if self.shared_nan and not self.explains_nan(form):
            if self.first < 0 or self.first_shared < self.first:
                self.first, self.first_is = self.first_shared, (NAN, FINITE)
            self.mismatches += self.shared_nan

    def merge(self, other: Nonfinite) -> None:
        """Take in what another pass has counted."""
        if other.mismatches and (self.first < 0 or other.first < self.first):
            self.first, self.first_is = other.first, other.first_is
        self.nan_actual += other.nan_actual
        self.nan_expected += other.nan_expected
        self.inf_actual += other.inf_actual
        self.inf_expected += other.inf_expected
        self.mismatches += other.mismatches
        if other.shared_nan and (self.first_shared < 0 or other.first_shared < self.first_shared):
            self.first_shared = other.first_shared
        self.shared_nan += other.shared_nan

    def add(self, actual: Floats, expected: Floats, honest: Sequence[Floats], form: Format, start: int) -> None:
        """Take in a chunk (float64) that holds something that is not finite in ``form``."""
        is_actual, is_expected = classes(actual), classes_in(expected, form)
        agrees = accepts(actual, expected, honest, form)
        shared = np.flatnonzero(agrees & (is_actual == NAN) & (is_expected == FINITE))
        if shared.size and self.first_shared < 0:
            self.first_shared = start + int(shared[0])
        self.shared_nan += shared.size
        self.nan_actual += int(np.count_nonzero(is_actual == NAN))
        self.nan_expected += int(np.count_nonzero(is_expected == NAN))
        self.inf_actual += int(np.count_nonzero(is_actual >= PLUS_INF))
        self.inf_expected += int(np.count_nonzero(is_expected >= PLUS_INF))
        wrong = np.flatnonzero(~agrees)
        if wrong.size and self.first < 0:
            self.first = start + int(wrong[0])
            self.first_is = int(is_actual[wrong[0]]), int(is_expected[wrong[0]])
        self.mismatches += wrong.size


def accepts(actual: Floats, expected: Floats, honest: Sequence[Floats], form: Format) -> Mask:
    """Say where the kind of value is right: as expected, or as an honest result has it, or a rounding from it.

    An honest result counts because a float64 reference knows no overflow of intermediate values. Whether NaN is right
    where a number is expected, which honest results share, :meth:`Nonfinite.settle` says.
    """
    is_actual = classes(actual)
    agrees: Mask = is_actual == classes_in(expected, form)
    for one in honest:
        agrees |= is_actual == classes(one)
    edge = 2.0 ** (form.emax - form.digits + 1)
    near = np.abs(np.abs(expected) - form.largest) <= edge
    same_sign = np.signbit(actual) == np.signbit(expected)
    agrees |= near & same_sign & (is_actual != NAN)
    return agrees


def classes(values: Floats) -> npt.NDArray[np.int64]:
    """Say of each value whether it is finite, NaN, plus or minus Inf."""
    kinds = np.where(np.isnan(values), NAN, FINITE)
    kinds[np.isposinf(values)] = PLUS_INF
    kinds[np.isneginf(values)] = MINUS_INF
    return kinds


def classes_in(values: Floats, form: Format) -> npt.NDArray[np.int64]:
    """The same for what a reference becomes in ``form``, where large numbers overflow."""
    kinds = classes(values)
    kinds[(kinds == FINITE) & (values > form.largest)] = PLUS_INF
    kinds[(kinds == FINITE) & (values < -form.largest)] = MINUS_INF
    return kinds
