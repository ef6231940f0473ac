"""How much the estimates of runs of the same thing differ: learnt from runs of one machine with itself (A/A).

What slows a machine down slows the work and its peer, but not always alike: of a convolution on a busy machine the
ratio to the peer rises by some three tenths of what the peer's own time does. A line through the runs of a baseline
tells (analysis of covariance), and what is left beside the line is the noise.

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

from pytest_ascend.performance.estimate import Estimate

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
