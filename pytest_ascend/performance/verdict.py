"""Slower, not slower, or cannot tell: a run's estimate against those of a baseline.

Both answers carry an error that is stated beforehand. "Slower" is wrong at most once in ``1 / ALARMS`` runs of *all*
benchmarks together (Bonferroni); "not slower" is said only where a slow-down of the gate's tolerance is excluded with
``CONFIDENCE``. Everything else is "cannot tell", with the smallest slow-down that the run could have seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_ascend.errors import UsageError
from pytest_ascend.performance.estimate import Estimate, quantile, tail
from pytest_ascend.performance.noise import Noise

SLOWER = "slower"
NOT_SLOWER = "not slower"
CANNOT_TELL = "cannot tell"

#: Share of runs in which any benchmark is called slower though none is.
ALARMS = 0.01
#: With which a slow-down of the tolerance is excluded, and with which one of ``detectable`` is seen.
CONFIDENCE = 0.95
#: A slow-down below this wakes nobody, however surely it is there: code that is only placed elsewhere does as much.
NEGLIGIBLE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """What is asked: ``tolerance`` is the slow-down to exclude (0.05 is 5 %), ``benchmarks`` how many are judged."""

    tolerance: float = 0.05
    benchmarks: int = 1

    @property
    def level(self) -> float:
        """Return the share of false alarms that is left for one benchmark."""
        return ALARMS / self.benchmarks


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What became of the comparison. Slow-downs are shares: 0.06 is 6 % slower, negative is faster.

    ``low`` and ``high`` are the ends of the interval that holds the slow-down with CONFIDENCE on each side;
    ``threshold`` is the least slow-down that is called slower, ``detectable`` the least that is called so with
    CONFIDENCE; ``p_value`` is the chance of so much by noise alone.
    """

    answer: str
    slowdown: float
    low: float
    high: float
    threshold: float
    detectable: float
    p_value: float

    def figures(self) -> dict[str, float]:
        """Return all but the answer, by name."""
        names = ("slowdown", "low", "high", "threshold", "detectable", "p_value")
        return {name: getattr(self, name) for name in names}


def judge(now: Estimate, baseline: Sequence[Estimate], noise: Noise, gate: Gate) -> Answer:
    """Compare a run with the runs of a baseline, whose estimates differ by ``noise`` from its line.

    Raises UsageError for an empty baseline or estimates of different scales.
    """
    if not baseline or {each.scale for each in baseline} != {now.scale}:
        scales = sorted({each.scale for each in baseline}) or ["nothing"]
        raise UsageError(f"a {now.scale} cannot be compared with {', '.join(scales)}", hint="record the baseline anew")
    line = noise.line
    deviation = _deviation(now, baseline, noise.variance * line.uncertainty(now.pace))
    difference = now.value - line.at(now.pace)
    freedom = noise.degrees_of_freedom
    p_value = tail(difference / deviation, freedom)
    reach = quantile(CONFIDENCE, freedom) * deviation
    threshold = max(quantile(1 - gate.level, freedom) * deviation, math.log1p(NEGLIGIBLE))
    return Answer(
        answer=_answer(difference, threshold, difference + reach, gate),
        slowdown=math.expm1(difference),
        low=math.expm1(difference - reach),
        high=math.expm1(difference + reach),
        threshold=math.expm1(threshold),
        detectable=math.expm1(threshold + reach),
        p_value=p_value,
    )


def _answer(difference: float, threshold: float, high: float, gate: Gate) -> str:
    if difference > threshold:
        return SLOWER
    return NOT_SLOWER if high < math.log1p(gate.tolerance) else CANNOT_TELL


def _deviation(now: Estimate, baseline: Sequence[Estimate], variance: float) -> float:
    """Return the standard deviation of the difference. A run that was more disturbed than the baseline's counts so."""
    usual = float(np.median([each.error for each in baseline]))
    disturbance = max(0.0, now.error**2 - usual**2)
    return math.sqrt(variance + disturbance)
