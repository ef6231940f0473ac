"""What a fused form may cost and has to save, beside the form that it replaces."""

from __future__ import annotations

import math

from torch import Tensor

from pytest_ascend.performance.estimate import Estimate
from pytest_ascend.performance.student import quantile
from pytest_ascend.performance.verdict import CONFIDENCE

#: Largest difference from the plain form, as a share of the plain form's largest value.
PRECISION_LOSS = 1e-4
#: Least share of the plain form's time that is to be saved.
TIME_SAVED = 0.3
#: Most memory at the peak, as a multiple of the plain form's.
MEMORY_RATIO = 1.2
#: Degrees of freedom of an estimate's error: it comes from eight blocks of rounds.
FREEDOM = 7


def precision_loss(fused: Tensor, plain: Tensor) -> float:
    """Return how far a fused form is from the plain one, as a share of the latter's largest value; inf for NaN."""
    difference = (fused.double() - plain.double()).abs().max().item()
    return difference / plain.double().abs().max().item() if math.isfinite(difference) else math.inf


def saved(ratio: Estimate) -> tuple[float, float, float]:
    """Return the share of time that is saved, and the ends of the interval that holds it with 95 % on each side.

    ``ratio`` is the estimate of the fused form's rounds with the plain form's as their peers.
    """
    reach = quantile(CONFIDENCE, FREEDOM) * ratio.error
    return tuple(-math.expm1(ratio.value + by * reach) for by in (0, 1, -1))  # type: ignore[return-value]


def complaint_about_loss(loss: float) -> str:
    """Say that too much precision is lost, "" where it is not."""
    if loss <= PRECISION_LOSS:
        return ""
    return f"the fused form is {loss:.2g} of the largest value off the plain one, {PRECISION_LOSS:g} allowed"


def complaint_about_time(share: float, low: float, high: float) -> str:
    """Say that too little time is saved, "" where it is enough, or cannot be told from enough."""
    if high >= TIME_SAVED:
        return ""
    return f"fusing saves {share:.0%} of the time ({low:.0%} to {high:.0%}), {TIME_SAVED:.0%} expected"


def complaint_about_memory(fused_bytes: int, plain_bytes: int) -> str:
    """Say that too much memory is taken, "" where it is not."""
    if fused_bytes <= MEMORY_RATIO * plain_bytes:
        return ""
    ratio = fused_bytes / plain_bytes
    return f"the fused form takes {ratio:.2f} times the memory of the plain one, {MEMORY_RATIO:g} allowed"
