"""How a comparison is to be judged, checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.attributes import Promise
from pytest_ascend.precision.standards import Standard, check_names
from pytest_ascend.records.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """How to judge: the standard, with its changed limits and the reason for looser ones, and what is known.

    Raises :class:`UsageError` where that makes no sense.
    """

    standard: Standard
    limits: Mapping[str, float] = field(default_factory=dict)
    waiver: str = ""
    accumulation: int | None = None
    scale: float | None = None
    branching: bool = False
    promise: Promise = field(default_factory=Promise)
    #: Whether more honest results are at hand where these do not explain an error.
    sampled: bool = False

    def __post_init__(self) -> None:
        if self.accumulation is not None and not (_is_whole(self.accumulation) and self.accumulation >= 1):
            raise UsageError(
                f"accumulation is {self.accumulation!r}",
                hint="give the number of terms in each sum, at least 1, or leave it out",
            )
        if self.scale is not None and not (_is_number(self.scale) and self.scale > 0):
            raise UsageError(
                f"scale is {self.scale!r}", hint="give the usual sum of the terms' magnitudes, or leave it out"
            )
        if self.limits:
            self._check_limits()
        if self.waiver and not str(self.waiver).strip():
            raise UsageError("the waiver is blank", hint="say why the looser limit is right here")
        requires_grad = self.promise.requires_grad
        if requires_grad is not None and not isinstance(requires_grad, bool):
            raise UsageError(f"requires_grad is {requires_grad!r}", hint="give True or False, or leave it out")

    def _check_limits(self) -> None:
        if not isinstance(self.limits, Mapping):
            raise UsageError(f"limits is {self.limits!r:.80}", hint="give limits by name, as in {'element_ulps': 1.0}")
        check_names(self.standard, self.limits)
        for name, value in self.limits.items():
            if not (_is_number(value) and value >= 0):
                raise UsageError(f"the limit {name} is {value!r:.80}", hint="give a number that is not negative")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def explain(verdict: Verdict) -> Iterator[str]:
    """Yield the lines that say what was found, where, and by which rule; for a verdict that agrees, its figures."""
    yield f"{verdict.path}: {verdict.headline}"
    if verdict.worst is not None:
        place = f"[{', '.join(map(str, verdict.worst.index))}]"
        yield f"  worst element: {place}  actual {verdict.worst.actual}  expected {verdict.worst.expected}"
    if verdict.limit is not None:
        yield f"  limit: {verdict.limit.name}: {verdict.limit.value:.4g}"
    yield f"  standard: {verdict.standard}" + (f", waived: {verdict.waiver}" if verdict.waiver else "")
    if verdict.pattern:
        yield f"  pattern: {verdict.pattern}"
    if verdict.metrics:
        yield f"  figures: {', '.join(f'{key} {value:.4g}' for key, value in verdict.metrics.items())}"
