"""What the judge found, as data: the figures of one comparison, kept for passes too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Worst:
    """One element: its index in the tensor, and both values as text."""

    index: tuple[int, ...]
    actual: str
    expected: str

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return {"index": list(self.index), "actual": self.actual, "expected": self.expected}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Worst:
        """Read what :meth:`to_dict` wrote."""
        return cls(index=tuple(data["index"]), actual=str(data["actual"]), expected=str(data["expected"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The rule that decided, and the value that it allowed (in the unit that the name says)."""

    name: str
    value: float

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return {"name": self.name, "value": self.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """Read what :meth:`to_dict` wrote."""
        return cls(name=str(data["name"]), value=float(data["value"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether an output agrees with what was expected of it, by which standard, and with what figures.

    ``path`` says which part of the output ("output[0].logits"); of a nested output the verdict as a whole repeats its
    worst leaf, and ``leaves`` holds one verdict for each leaf. ``metrics`` may hold NaN and Inf. ``waiver`` is the
    reason given for judging by a looser limit than the standard's, empty where nothing was loosened. Of wrong elements,
    ``worst_elements`` has the worst first, and ``where`` a picture: the tensor as rows of cells, its last dimension
    across and all others down, a digit each from 0 for no wrong element to 9 for nothing else.
    """

    path: str
    agrees: bool
    standard: str
    headline: str
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    worst: Worst | None = None
    limit: Limit | None = None
    pattern: str = ""
    waiver: str = ""
    worst_elements: tuple[Worst, ...] = ()
    where: tuple[str, ...] = ()
    leaves: tuple[Verdict, ...] = ()

    def as_whole(self) -> Verdict:
        """Return the verdict of an output that is one leaf, and has that as its only leaf."""
        return replace(self, leaves=(self,))

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, as they stand in a run log; ``leaves`` one level deep."""
        return {**self.own_dict(), "leaves": [leaf.own_dict() for leaf in self.leaves]}

    def own_dict(self) -> dict[str, Any]:
        """The same without the leaves."""
        return {
            "path": self.path,
            "agrees": self.agrees,
            "standard": self.standard,
            "headline": self.headline,
            "message": self.message,
            "metrics": dict(self.metrics),
            "worst": self.worst and self.worst.to_dict(),
            "limit": self.limit and self.limit.to_dict(),
            "pattern": self.pattern,
            "waiver": self.waiver,
            **({"worst_elements": [each.to_dict() for each in self.worst_elements]} if self.worst_elements else {}),
            **({"where": list(self.where)} if self.where else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Read what :meth:`to_dict` wrote. Raises KeyError, TypeError or ValueError on anything else."""
        return cls(
            path=str(data["path"]),
            agrees=bool(data["agrees"]),
            standard=str(data["standard"]),
            headline=str(data["headline"]),
            message=str(data["message"]),
            metrics=dict(data["metrics"]),
            worst=Worst.from_dict(data["worst"]) if data["worst"] else None,
            limit=Limit.from_dict(data["limit"]) if data["limit"] else None,
            pattern=str(data["pattern"]),
            waiver=str(data.get("waiver", "")),
            worst_elements=tuple(Worst.from_dict(each) for each in data.get("worst_elements", ())),
            where=tuple(map(str, data.get("where", ()))),
            leaves=tuple(cls.from_dict(leaf) for leaf in data.get("leaves", ())),
        )
