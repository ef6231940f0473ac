"""Student's t distribution: its upper tail and its quantiles."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

from mpmath import betainc, findroot

#: Beyond this many degrees of freedom the normal distribution is the same to five digits.
NORMAL_FROM = 1e5


def tail(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of more than ``t``."""
    if degrees_of_freedom >= NORMAL_FROM:
        return NormalDist().cdf(-t)
    share = degrees_of_freedom / (degrees_of_freedom + t * t)
    beyond = float(betainc(degrees_of_freedom / 2, 0.5, 0, share, regularized=True)) / 2
    return beyond if t >= 0 else 1 - beyond


@lru_cache(maxsize=1024)
def quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the value that is exceeded with ``1 - probability``; ``probability`` from 0.5 to below 1."""
    normal = NormalDist().inv_cdf(probability)
    if degrees_of_freedom >= NORMAL_FROM:
        return normal
    # With few degrees of freedom the tail falls like a power of t: a bracket found by doubling holds the root.
    low, high = 0.0, max(normal, 1.0)
    while tail(high, degrees_of_freedom) > 1 - probability:
        low, high = high, 2 * high
    root = findroot(lambda t: tail(float(t), degrees_of_freedom) - (1 - probability), (low, high), solver="anderson")
    return float(root)
