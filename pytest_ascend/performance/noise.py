"""How much the estimates of runs of the same thing differ: learnt from runs of one machine with itself (A/A).

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
from dataclasses import dataclass

import numpy as np
from mpmath import findroot, psi

#: Where all variances are alike, their number of degrees of freedom is without limit; this is as good.
MANY = 1e6
#: A standard deviation below this is a clock's resolution, not a machine's calm.
LEAST_DEVIATION = 5e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The variance of a run's estimate, and the degrees of freedom that it is known with."""

    variance: float
    degrees_of_freedom: float


def noise_of(runs: Mapping[str, Sequence[float]]) -> dict[str, Noise]:
    """Give the noise of each benchmark from its estimates in several runs; one with fewer than two runs has none."""
    own = {name: _variance(values) for name, values in runs.items() if len(values) >= 2}
    freedom = {name: len(runs[name]) - 1 for name in own}
    if not own:
        return {}
    prior = _prior(list(own.values()), list(freedom.values()))
    return {name: _moderated(own[name], freedom[name], prior) for name in own}


def _variance(values: Sequence[float]) -> float:
    return max(float(np.var(values, ddof=1)), LEAST_DEVIATION**2)


def _moderated(own: float, freedom: int, prior: Noise) -> Noise:
    total = freedom + prior.degrees_of_freedom
    variance = (freedom * own + prior.degrees_of_freedom * prior.variance) / total
    return Noise(variance=variance, degrees_of_freedom=total)


def _prior(variances: Sequence[float], freedoms: Sequence[int]) -> Noise:
    """Give what is usual among these variances; of one alone nothing is known of others."""
    if len(variances) < 2:
        return Noise(variance=variances[0], degrees_of_freedom=0.0)
    halves = [freedom / 2 for freedom in freedoms]
    logs = [
        math.log(variance) - float(psi(0, half)) + math.log(half)
        for variance, half in zip(variances, halves, strict=True)
    ]
    spread = float(np.var(logs, ddof=1)) - float(np.mean([float(psi(1, half)) for half in halves]))
    half_prior = _inverse_trigamma(spread) if spread > 0 else MANY / 2
    usual = float(np.mean(logs)) + float(psi(0, half_prior)) - math.log(half_prior)
    return Noise(variance=math.exp(usual), degrees_of_freedom=2 * half_prior)


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value for x > 0, on a logarithmic scale, where it is almost a line."""
    if value < 2 / MANY:
        return MANY / 2
    start = math.log(1 / value + 0.5)
    return math.exp(float(findroot(lambda x: math.log(float(psi(1, math.exp(x)))) - math.log(value), start)))
