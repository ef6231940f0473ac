"""What is known of one case when it is over: one line of the run log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Outcome

#: Points of one series, and series of one case: a curve of a long training, and samples of a long benchmark.
SERIES_POINTS_LIMIT = 10_000
SERIES_LIMIT = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRecord:
    """A case, what became of it, and the figures behind that.

    ``verdicts`` holds one dictionary for each comparison (see :meth:`pytest_ascend.records.verdict.Verdict.to_dict`),
    kept for passes too. ``measurements`` are named numbers with their unit in the name (``latency_us``).
    ``fallbacks`` lists the aten operators that ran elsewhere than on the device, empty for none. ``series`` are named
    lists of numbers: samples behind a measurement (``latency_us``), or a curve as the pair ``loss_actual`` and
    ``loss_expected``, one number a step. ``waiver`` has the reason, issue, owner and
    expires (a date) of the waiver by which a deviation was excused, empty for none.
    ``diagnosis`` says what an error means (see :mod:`pytest_ascend.diagnosis`), empty for a case that ended in none.
    ``attempts`` has each attempt where there was more than one: its ``card``, ``end``, ``outcome``, ``reason``, and
    whether it ran ``alone``, with blocking launches. ``snippet`` is a Python program that shows what is wrong with the
    case, empty where nothing is, and where nobody knows how to write one.
    """

    case: Case
    node_id: str
    outcome: Outcome
    verdicts: tuple[Mapping[str, Any], ...] = ()
    measurements: Mapping[str, float] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    duration_s: float = 0.0
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    waiver: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    attempts: tuple[Mapping[str, Any], ...] = ()
    snippet: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only: what travels between processes and into the run log."""
        return {
            "case": self.case.to_dict(),
            "node_id": self.node_id,
            "outcome": self.outcome.name,
            "reason": self.outcome.reason,
            "detail": self.outcome.detail,
            "verdicts": [dict(verdict) for verdict in self.verdicts],
            "measurements": dict(self.measurements),
            "fallbacks": list(self.fallbacks),
            "duration_s": self.duration_s,
            **({"waiver": dict(self.waiver)} if self.waiver else {}),
            **({"diagnosis": dict(self.diagnosis)} if self.diagnosis else {}),
            **({"series": {name: list(values) for name, values in self.series.items()}} if self.series else {}),
            **({"attempts": [dict(each) for each in self.attempts]} if self.attempts else {}),
            **({"snippet": self.snippet} if self.snippet else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ResultRecord:
        """Read what :meth:`to_dict` wrote. Raises KeyError, TypeError or ValueError on anything else."""
        outcome = OUTCOMES[data["outcome"]](reason=data["reason"], detail=data["detail"])
        return cls(
            case=Case.from_dict(data["case"]),
            node_id=data["node_id"],
            outcome=outcome,
            verdicts=tuple(data["verdicts"]),
            measurements=dict(data["measurements"]),
            fallbacks=tuple(data["fallbacks"]),
            duration_s=float(data["duration_s"]),
            waiver=dict(data.get("waiver", {})),
            diagnosis=dict(data.get("diagnosis", {})),
            series={name: tuple(values) for name, values in data.get("series", {}).items()},
            attempts=tuple(data.get("attempts", ())),
            snippet=data.get("snippet", ""),
        )
