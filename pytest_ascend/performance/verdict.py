"""Slower, not slower, or cannot tell: a run's estimate against those of a baseline.

Both answers carry an error that is stated beforehand. "Slower" is wrong at most once in ``1 / ALARMS`` runs of *all*
benchmarks together (Bonferroni); "not slower" is said only where a slow-down of the gate's tolerance is excluded with
``CONFIDENCE``. Everything else is "cannot tell", with the smallest slow-down that the run could have seen.

How much the estimates of runs of the same thing differ is learnt from runs of one machine with itself (A/A). What slows
a machine down slows the work and its peer, but not always alike: of a convolution on a busy machine the ratio to the
peer rises by some three tenths of what the peer's own time does. A line through the runs of a baseline tells (analysis
of covariance), and what is left beside the line is the noise.

A benchmark has few runs in a baseline, and the variance of few numbers is itself a guess. All benchmarks of a machine
are therefore looked at together: each one's own variance is moved towards what is usual there, as far as the variances
themselves say that they are alike. This is the moderated variance of G. K. Smyth, "Linear models and empirical Bayes
methods for assessing differential expression", Statistical Applications in Genetics and Molecular Biology 3 (2004),
section 6.2: log variances of normal samples have the mean log(s0^2) + digamma(d/2) - log(d/2) and the variance
trigamma(d/2) + trigamma(d0/2), from which s0 and d0 follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mpmath import findroot, psi

from pytest_ascend.errors import UsageError
from pytest_ascend.performance.estimate import Estimate, quantile, tail

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
        raise UsageError(f"a {now.scale} cannot be compared with {', '.join(scales)}", hint="record the baseline again")
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


#: Where all variances are alike, their number of degrees of freedom is without limit; this is as good.
MANY = 1e6
#: A standard deviation below this is a clock's resolution, not a machine's calm.
LEAST_DEVIATION = 5e-4
#: With fewer runs a slope is a guess.
FEWEST_FOR_A_LINE = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """How the estimates of a baseline's runs go with their pace: means, slope, and the paces' squared distances."""

    value: float
    pace: float
    slope: float = 0.0
    spread: float = 0.0
    runs: int

    def at(self, pace: float) -> float:
        """Return the estimate to expect of a run with this pace."""
        return self.value + self.slope * (pace - self.pace)

    def uncertainty(self, pace: float) -> float:
        """Return the variance of a run's distance from the line, as a multiple of the noise's."""
        beyond = (pace - self.pace) ** 2 / self.spread if self.spread else 0.0
        return 1 + 1 / self.runs + beyond


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The variance of a run's estimate beside the ``line`` of its baseline, and the degrees of freedom of that."""

    variance: float
    degrees_of_freedom: float
    line: Line


def line_through(runs: Sequence[Estimate]) -> Line:
    """Lay a line through the runs of one benchmark; a level one where they are few, or of one pace."""
    values, paces = (np.array([getattr(each, name) for each in runs]) for name in ("value", "pace"))
    level = Line(value=float(values.mean()), pace=float(paces.mean()), runs=len(runs))
    apart = paces - paces.mean()
    spread = float(apart @ apart)
    if len(runs) < FEWEST_FOR_A_LINE or spread < len(runs) * LEAST_DEVIATION**2:
        return level
    return replace(level, slope=float(apart @ values) / spread, spread=spread)


def noise_of(runs: Mapping[str, Sequence[Estimate]]) -> dict[str, Noise]:
    """Return the noise of each benchmark from its estimates in several runs; one with fewer than two runs has none."""
    lines = {name: line_through(each) for name, each in runs.items() if len(each) >= 2}
    freedom = {name: line.runs - (2 if line.spread else 1) for name, line in lines.items()}
    own = {name: _variance(runs[name], line, freedom[name]) for name, line in lines.items()}
    if not own:
        return {}
    prior = _prior(list(own.values()), list(freedom.values()))
    return {name: _moderated(own[name], line, freedom[name], prior) for name, line in lines.items()}


def _variance(runs: Sequence[Estimate], line: Line, freedom: int) -> float:
    beside = sum((each.value - line.at(each.pace)) ** 2 for each in runs)
    return max(beside / freedom, LEAST_DEVIATION**2)


def _moderated(own: float, line: Line, freedom: int, prior: tuple[float, float]) -> Noise:
    usual, known_with = prior
    total = freedom + known_with
    return Noise(variance=(freedom * own + known_with * usual) / total, degrees_of_freedom=total, line=line)


def _prior(variances: Sequence[float], freedoms: Sequence[int]) -> tuple[float, float]:
    """Return what is usual among these variances, with its degrees of freedom: none where there is one alone."""
    if len(variances) < 2:
        return variances[0], 0.0
    halves = [freedom / 2 for freedom in freedoms]
    logs = [
        math.log(variance) - float(psi(0, half)) + math.log(half)
        for variance, half in zip(variances, halves, strict=True)
    ]
    spread = float(np.var(logs, ddof=1)) - float(np.mean([float(psi(1, half)) for half in halves]))
    half_prior = _inverse_trigamma(spread) if spread > 0 else MANY / 2
    usual = float(np.mean(logs)) + float(psi(0, half_prior)) - math.log(half_prior)
    return math.exp(usual), 2 * half_prior


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value for x > 0, on a logarithmic scale, where it is almost a line."""
    if value < 2 / MANY:
        return MANY / 2
    start = math.log(1 / value + 0.5)
    return math.exp(float(findroot(lambda x: math.log(float(psi(1, math.exp(x)))) - math.log(value), start)))
