"""From the rounds of one run to one number, comparable between runs, with its standard error.

Times on one machine vary by tens of percent from minute to minute: another process on the sibling of a core, a clock
that follows the temperature. Two things help:

* On a device without a peer only the quickest rounds count, since disturbances only ever add time.
* If the work shares the host's processor (the emulated device), the same work runs on plain CPU tensors before each
  round: the *peer*. A slower machine slows both rounds of a pair, or each equally often, and the median of their ratios
  stays. It depends on where in memory inputs are: at one place in four, a matrix product takes half as long again.
  The work is therefore prepared about thirty times during the rounds, and the median over the places counts.

On a machine with two cores, and another process busy on and off, the estimates of ten operators varied by 0.4 to 1.8 %
from one run to the next, over fourteen runs. By comparing the quickest tenth of each side, they varied by 0.5 to 2 %,
and those of the product, with three rounds per place, by 15 %. Operators that only move memory vary by 1 to 3 % (2 to
6 % before).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_ascend.system.errors import UsageError


def tail(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of more than ``t`` by Student's distribution."""
    from scipy import special  # here: it takes a tenth of the time in which a run starts

    return float(special.stdtr(degrees_of_freedom, -t))


def quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the value that Student's distribution exceeds with ``1 - probability``."""
    from scipy import special

    return -float(special.stdtrit(degrees_of_freedom, 1 - probability))


#: Places in memory for work with a peer, one block of rounds each, and the minimum of rounds per block.
PLACES, FEWEST_AT_A_PLACE = 32, 3
#: Factors from a median absolute deviation to a standard deviation, and from a mean's error to a median's (normal).
OF_DEVIATIONS, OF_MEDIANS = 1.4826, 1.2533

PAIRED = "log of the ratio to the peer"
ALONE = "log of microseconds"

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One run's result on a logarithmic scale, so that a difference of 0.05 is 5 %, and its standard error.

    ``scale`` is what the logarithm is of: PAIRED or ALONE. Only estimates of one scale can be compared. ``pace`` is the
    logarithm of the peer's own median in us, which shows how busy the machine was; 0 without a peer.
    """

    value: float
    error: float
    scale: str
    pace: float = 0.0


def estimate(latencies_us: Sequence[float], peers_us: Sequence[float] = ()) -> Estimate:
    """Return the estimate of a run: from its rounds' ``latencies_us``, and the peer's before each of them, if any.

    Raises UsageError for fewer than two rounds, for times that are not positive, and for a different number of peers.
    """
    times = np.log(_checked(latencies_us))
    if not len(peers_us):
        return Estimate(value=_quickest(times), error=_error(times), scale=ALONE)
    peers = np.log(_checked(peers_us))
    if len(peers) != len(times):
        raise UsageError(f"{len(times)} rounds and {len(peers)} of the peer", hint="time the peer before each round")
    places = max(1, min(PLACES, len(times) // FEWEST_AT_A_PLACE))
    found = np.array([np.median(ratios) for ratios in np.array_split(times - peers, places)])
    middle = float(np.median(found))
    spread = OF_DEVIATIONS * float(np.median(np.abs(found - middle)))
    error = OF_MEDIANS * spread / np.sqrt(places) if places > 1 else float("inf")
    return Estimate(value=middle, error=float(error), scale=PAIRED, pace=float(np.median(peers)))


def _checked(times_us: Sequence[float]) -> Floats:
    times = np.asarray(times_us, dtype=np.float64)
    if times.ndim != 1 or len(times) < 2 or not np.all(np.isfinite(times) & (times > 0)):
        hint = "two rounds at least, each of more than 0 us"
        raise UsageError(f"{len(times_us)} times cannot be estimated from: {list(times_us)[:3]}...", hint=hint)
    return times


def _quickest(values: Floats) -> float:
    """Return the mean of the tenth of the rounds that counts without a peer."""
    return float(np.sort(values)[: max(1, round(len(values) * 0.1))].mean())


def _error(times: Floats) -> float:
    """Return the standard error, from the spread of blocks of consecutive rounds.

    The quickest rounds are in the calm blocks, and only they count: the noisier half of the blocks is ignored.
    """
    blocks = min(8, len(times) // 2)  # consecutive rounds share disturbances
    if blocks < 2:
        return float("inf")
    found = np.array([_quickest(part) for part in np.array_split(times, blocks)])
    calm = np.sort(np.abs(found - np.median(found)))[: max(2, blocks // 2)]
    return float(np.sqrt(np.mean(calm**2)) / np.sqrt(blocks))
