"""The judge's verdict as data: the metrics of one comparison, also for passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from pytest_ascend.records.bounds import Count, Metric, Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Worst:
    """One element: its index in the tensor, and both values as text."""

    index: tuple[Count, ...]
    actual: str
    expected: str


class Rule(str, Enum):
    """The judge's own rules; values are the words of messages and logs. Published standards define further ones."""

    ELEMENT = "error of one element"
    ELEMENT_ULPS = "error of one element in ulp"
    LARGEST_ULPS = "largest error in ulp"
    RMS = "root mean square error"
    RMS_ULPS = "root mean square error in ulp"
    BLOCK = "root mean square error of one block"
    BIAS = "mean signed error in ulp"
    ZERO = "error where zero is expected"
    UNEQUAL = "elements that are not equal"
    UNEQUAL_BITS = "elements that are not bitwise equal"

    __str__ = str.__str__  # the words


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The deciding rule, and the value that it allows (in the unit given in its name)."""

    name: str
    value: Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether an output agrees with the expected one, by which standard, and with which metrics.

    ``path`` names the part of the output ("output[0].logits"). For a nested output, the overall verdict repeats its
    worst leaf, and ``leaves`` holds one verdict per leaf, one level deep. ``metrics`` may hold NaN and Inf. ``waiver``
    is the reason given for a looser limit than the standard's, empty if none was loosened. For wrong elements,
    ``worst_elements`` has the worst first, and ``where`` a map: the tensor as rows of cells, its last dimension across
    and all others down, one digit per cell, from 0 for no wrong element to 9 for only wrong ones.
    """

    path: str
    agrees: bool
    standard: str
    headline: str
    message: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    worst: Worst | None = None
    limit: Limit | None = None
    pattern: str = ""
    waiver: str = ""
    worst_elements: tuple[Worst, ...] = ()
    where: tuple[str, ...] = ()
    leaves: tuple[Verdict, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if a leaf has leaves."""
        if any(leaf.leaves for leaf in self.leaves):
            raise ValueError(".leaves: a leaf has leaves of its own")

    @property
    def is_evidence(self) -> bool:
        """Return whether it counts for a pass: agreement without leaves compared nothing, as with two empty lists."""
        return bool(self.leaves) or not self.agrees

    def in_full(self) -> Verdict:
        """Return the verdict with all metrics computed now, instead of when they are read."""
        metrics = {name: value if value is None else float(value) for name, value in self.metrics.items()}
        return replace(self, metrics=metrics, leaves=tuple(leaf.in_full() for leaf in self.leaves))

    def as_whole(self) -> Verdict:
        """Return the verdict of an output that is a single leaf, with itself as its only leaf."""
        return replace(self, leaves=(self,))


SATURATES = "saturation in place of Inf and NaN"
FLUSHES = "subnormal numbers flushed to zero"
HALVES = "products of float32 in half precision"
#: torch_npu drops ``approximate``: its gelu calls aclnnGelu, which has no such argument.
GELU_BY_TANH = "GELU by its tanh formula"


def as_expected_of(names: Iterable[str]) -> str:
    """Return the message for some of these deviations."""
    return f"as expected of a chip with {', '.join(names)}"


def named_in(pattern: str) -> frozenset[str]:
    """Return the deviations that a pattern names."""
    found = re.search(r"as expected of a chip with ([^;\n]+)", pattern)
    return frozenset(found[1].split(", ")) if found else frozenset()
