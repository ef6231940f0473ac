"""How far a run is: what it is at, how much is done, how long the rest may take, and the worst so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.summary import ORDER

#: Outcomes that nobody waits to hear of.
_EXPECTED = ("passed", "waived", "not-emulated")


class Progress:
    """Follows a run. ``weights_s`` gives every case that has to run, by id, and about how long it takes."""

    def __init__(self, weights_s: Mapping[str, float], started: float) -> None:
        self._left = dict(weights_s)
        self._total, self._total_s = len(weights_s), sum(weights_s.values())
        self._started = started
        self._counts: Counter[str] = Counter()
        self._now = ""
        self._worst: tuple[float, str] = (0.0, "")

    def take(self, record: ResultRecord) -> None:
        """Note what became of one case."""
        self._left.pop(record.case.id, None)
        self._counts[record.outcome.name] += 1
        self._now = record.case.id
        used = evidence.limit_used(record)
        if used is not None and used > self._worst[0]:
            self._worst = (used, record.case.id)

    def line(self, now: float) -> str:
        """Say it in one line; ``now`` and the time of the start are of the same clock, in seconds."""
        done = self._total - len(self._left)
        parts = [f"{done:,} of {self._total:,} cases", *self._rest(now), *self._odd()]
        share, case_id = self._worst
        if case_id:
            parts.append(f"worst {figures.used(share)} of its limit: {evidence.line(case_id)}")
        return ", ".join(parts)

    def at(self) -> str:
        """Name the case that was decided last."""
        return evidence.line(self._now)

    def _rest(self, now: float) -> list[str]:
        done_s = self._total_s - sum(self._left.values())
        if not self._left or done_s <= 0:
            return []
        rest_s = (now - self._started) / done_s * (self._total_s - done_s)
        return [f"about {figures.duration(max(rest_s, 1.0))} left"]

    def _odd(self) -> list[str]:
        return [f"{self._counts[name]:,} {name}" for name in ORDER if self._counts[name] and name not in _EXPECTED]
