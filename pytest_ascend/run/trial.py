"""What is gathered while a case runs, and what becomes of it in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed, Fallback, Outcome, Passed
from pytest_ascend.records.record import ResultRecord


@dataclass(kw_only=True, slots=True)
class Trial:
    """A case on its way through its test. ``interrupted`` is the outcome of whatever ended the test early."""

    case: Case
    node_id: str
    verdicts: list[Mapping[str, Any]] = field(default_factory=list)
    measurements: dict[str, float] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    interrupted: Outcome | None = None
    duration_s: float = 0.0

    def measure(self, name: str, value: float) -> None:
        """Keep a figure. Raises UsageError for one that is no number, or whose name stands already."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"the measurement {name!r} is {value!r}", hint="give one int or float")
        if name in self.measurements:
            raise UsageError(f"the measurement {name!r} is taken twice in one test", hint="name each by what it is")
        self.measurements[name] = float(value)

    def outcome(self) -> Outcome:
        """Judge by the evidence: a test that ended well passes only if it compared or measured on the device."""
        if self.interrupted is not None:
            return self.interrupted
        disagreeing = [verdict for verdict in self.verdicts if not verdict["agrees"]]
        if disagreeing:
            return Failed(reason=str(disagreeing[0]["headline"]), detail=str(disagreeing[0]["message"]))
        if not self.verdicts and not self.measurements:
            return Errored(reason="the test passed without comparing or measuring anything")
        if self.fallbacks:
            return Fallback(reason=f"computed on the CPU: {', '.join(self.fallbacks)}")
        return Passed()

    def record(self) -> ResultRecord:
        """Give the case's line of the run log."""
        return ResultRecord(
            case=self.case,
            node_id=self.node_id,
            outcome=self.outcome(),
            verdicts=tuple(self.verdicts),
            measurements=dict(self.measurements),
            fallbacks=tuple(self.fallbacks),
            duration_s=self.duration_s,
        )
