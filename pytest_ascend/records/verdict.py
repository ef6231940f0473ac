"""The judge's verdict as data: the figures of one comparison, also of passes."""

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
    """The judge's own rules; values are the words of messages and logs. Published standards have further ones."""

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
    """The rule that decided, and the value that it allowed (in the unit that the name says)."""

    name: str
    value: Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether an output agrees with what was expected of it, by which standard, and with what figures.

    ``path`` says which part of the output ("output[0].logits"); of a nested output the verdict as a whole repeats its
    worst leaf, and ``leaves`` holds one verdict for each leaf, one level deep. ``metrics`` may hold NaN and Inf.
    ``waiver`` is the reason given for judging by a looser limit than the standard's, empty where nothing was loosened.
    Of wrong elements, ``worst_elements`` has the worst first, and ``where`` a picture: the tensor as rows of cells, its
    last dimension across and all others down, a digit each from 0 for no wrong element to 9 for nothing else.
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
        """Raise ValueError for leaves that have leaves."""
        if any(leaf.leaves for leaf in self.leaves):
            raise ValueError(".leaves: a leaf has leaves of its own")

    @property
    def is_evidence(self) -> bool:
        """Whether it counts for a pass: one that agrees without leaves compared nothing, as of two empty lists."""
        return bool(self.leaves) or not self.agrees

    def in_full(self) -> Verdict:
        """Return the verdict with figures that are computed now, where they would be when they are read."""
        metrics = {name: value if value is None else float(value) for name, value in self.metrics.items()}
        return replace(self, metrics=metrics, leaves=tuple(leaf.in_full() for leaf in self.leaves))

    def as_whole(self) -> Verdict:
        """Return the verdict of an output that is one leaf, and has that as its only leaf."""
        return replace(self, leaves=(self,))


SATURATES = "saturation in place of Inf and NaN"
FLUSHES = "subnormal numbers flushed to zero"
HALVES = "products of float32 in half precision"
#: torch_npu drops ``approximate``: its gelu calls aclnnGelu, which has no such argument.
GELU_BY_TANH = "GELU by its tanh formula"
_KNOWN_DEVIATION = re.compile(r"as expected of a chip with ([^;\n]+)")


def as_expected_of(names: Iterable[str]) -> str:
    """Return the words for some of them."""
    return f"as expected of a chip with {', '.join(names)}"


def named_in(pattern: str) -> frozenset[str]:
    """Return those that a pattern names."""
    found = _KNOWN_DEVIATION.search(pattern)
    return frozenset(found[1].split(", ")) if found else frozenset()
