"""Slower, not slower, or cannot tell: a run's estimate against those of a baseline, as ``docs/benchmarks.md`` says.

A slower machine slows the work and its peer, but not always equally: on a busy machine, the ratio of a convolution to
its peer rises by about three tenths of the peer's own slow-down. A line through the runs of a baseline models this
(analysis of covariance), and the residuals are the noise.

Each variance shrinks towards the usual one, depending on how much the variances differ. This is the moderated variance
of G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression", Statistical
Applications in Genetics and Molecular Biology 3 (2004), section 6.2: log variances of normal samples have the mean
log(s0^2) + digamma(d/2) - log(d/2) and the variance trigamma(d/2) + trigamma(d0/2), from which s0 and d0 follow.

Times on one machine vary by tens of percent from minute to minute, with other processes on the sibling of a core and
with the temperature, which the clock follows. The *peer* is the same work on plain CPU tensors before each round: a
slower machine slows both, or each equally often, and the median of their ratios is stable. It depends on where inputs
are in memory: at one place in four, a matrix product takes half as long again, so the work is prepared about 30 times.

On two cores, with another process busy on and off, the estimates of ten operators varied by 0.4 to 1.8 % from one run
to the next, over fourteen runs. By comparing the quickest tenth of each side, they varied by 0.5 to 2 %, and those of
the product, with three rounds per place, by 15 %. Operators that only move memory vary by 1 to 3 % (2 to 6 % before).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_ascend.system.errors import UsageError

#: Places in memory for work with a peer, one block of rounds each, and the minimum of rounds per block.
PLACES, FEWEST_AT_A_PLACE = 32, 3
#: Factors from a median absolute deviation to a standard deviation, and from a mean's error to a median's (normal).
OF_DEVIATIONS, OF_MEDIANS = 1.4826, 1.2533

PAIRED, ALONE = "log of the ratio to the peer", "log of microseconds"
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One run's result on a logarithmic scale, so that a difference of 0.05 is 5 %, and its standard error.

    ``scale`` says what the logarithm was taken of: PAIRED or ALONE. Only estimates of one scale can be compared.
    ``pace`` is the logarithm of the peer's own median in us, which shows how busy the machine was; 0 without a peer.
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
        # The quickest rounds are in the calm blocks, and only they count: the noisier half of the blocks is ignored.
        blocks = min(8, len(times) // 2)  # consecutive rounds share disturbances
        if blocks < 2:
            return Estimate(value=_quickest(times), error=float("inf"), scale=ALONE)
        found = np.array([_quickest(part) for part in np.array_split(times, blocks)])
        calm = np.sort(np.abs(found - np.median(found)))[: max(2, blocks // 2)]
        error = np.sqrt(np.mean(calm**2)) / np.sqrt(blocks)
        return Estimate(value=_quickest(times), error=float(error), scale=ALONE)
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
    """Return the mean of the quickest tenth of the rounds, which counts without a peer."""
    return float(np.sort(values)[: max(1, round(len(values) * 0.1))].mean())


SLOWER, NOT_SLOWER, CANNOT_TELL = "slower", "not slower", "cannot tell"
#: Share of runs in which some benchmark is reported slower although none is.
ALARMS = 0.01
#: The confidence of excluding a slow-down of the tolerance, and of detecting one of ``detectable``.
CONFIDENCE = 0.95
#: Smaller slow-downs are ignored, however certain: moving code in memory has the same effect.
NEGLIGIBLE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The question: ``tolerance`` is the slow-down to exclude (0.05 is 5 %), ``benchmarks`` the number judged."""

    tolerance: float = 0.05
    benchmarks: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The result of a comparison. Slow-downs are shares: 0.06 is 6 % slower, negative is faster.

    ``low`` and ``high`` are the ends of the slow-down's interval, with CONFIDENCE on each side; ``threshold`` is the
    smallest slow-down that is reported, ``detectable`` the smallest that is reported with CONFIDENCE; ``p_value`` is
    the probability of as much by noise alone.
    """

    answer: str
    slowdown: float
    low: float
    high: float
    threshold: float
    detectable: float
    p_value: float

    def figures(self) -> dict[str, float]:
        """Return everything but the answer, by name."""
        return {name: value for name, value in asdict(self).items() if name != "answer"}

    def confirmed_by(self, second: Answer) -> Answer:
        """Combine with a second answer: return that one if it finds no slow-down, else the smaller of both."""
        if second.p_value > 1 - CONFIDENCE or second.slowdown < NEGLIGIBLE:
            return second
        return replace(min(self, second, key=lambda each: each.slowdown), answer=SLOWER)


def tail(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of more than ``t`` by Student's distribution."""
    from scipy import special  # here: the import takes a tenth of the startup time of a run

    return float(special.stdtr(degrees_of_freedom, -t))


def quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the value that Student's distribution exceeds with ``1 - probability``."""
    from scipy import special

    return -float(special.stdtrit(degrees_of_freedom, 1 - probability))


def judge(now: Estimate, baseline: Sequence[Estimate], noise: Noise, gate: Gate) -> Answer:
    """Compare a run with the runs of a baseline, whose estimates vary by ``noise`` about its line.

    Raises UsageError for an empty baseline or estimates of different scales.
    """
    if not baseline or {each.scale for each in baseline} != {now.scale}:
        scales = sorted({each.scale for each in baseline}) or ["nothing"]
        raise UsageError(f"a {now.scale} cannot be compared with {', '.join(scales)}", hint="record the baseline again")
    # The standard deviation of the difference is larger if the run was disturbed more than the baseline.
    usual = float(np.median([each.error for each in baseline]))
    disturbance = max(0.0, now.error**2 - usual**2)
    deviation = math.sqrt(noise.variance * noise.line.uncertainty(now.pace) + disturbance)
    difference, freedom = now.value - noise.line.at(now.pace), noise.degrees_of_freedom
    reach = quantile(CONFIDENCE, freedom) * deviation
    # The false-alarm rate is divided among all benchmarks.
    threshold = max(quantile(1 - ALARMS / gate.benchmarks, freedom) * deviation, math.log1p(NEGLIGIBLE))
    return Answer(
        answer=_answer(difference, threshold, difference + reach, gate),
        slowdown=math.expm1(difference),
        low=math.expm1(difference - reach),
        high=math.expm1(difference + reach),
        threshold=math.expm1(threshold),
        detectable=math.expm1(threshold + reach),
        p_value=tail(difference / deviation, freedom),
    )


def _answer(difference: float, threshold: float, high: float, gate: Gate) -> str:
    if difference > threshold:
        return SLOWER
    return NOT_SLOWER if high < math.log1p(gate.tolerance) else CANNOT_TELL


#: Degrees of freedom used for infinity, if all variances are equal.
MANY = 1e6
#: A smaller standard deviation only reflects a clock's resolution.
LEAST_DEVIATION = 5e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """The estimates of a baseline's runs as a function of pace: means, slope, and the paces' squared distances."""

    value: float
    pace: float
    slope: float = 0.0
    spread: float = 0.0
    runs: int

    def at(self, pace: float) -> float:
        """Return the expected estimate of a run with this pace."""
        return self.value + self.slope * (pace - self.pace)

    def uncertainty(self, pace: float) -> float:
        """Return the variance of a run's distance from the line, as a multiple of the noise's."""
        return 1 + 1 / self.runs + ((pace - self.pace) ** 2 / self.spread if self.spread else 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The variance of a run's estimate about the ``line`` of its baseline, with its degrees of freedom."""

    variance: float
    degrees_of_freedom: float
    line: Line


def line_through(runs: Sequence[Estimate]) -> Line:
    """Fit a line to the runs of one benchmark; a horizontal one if there are few, or if all have the same pace."""
    values, paces = np.array([each.value for each in runs]), np.array([each.pace for each in runs])
    level = Line(value=float(values.mean()), pace=float(paces.mean()), runs=len(runs))
    apart = paces - paces.mean()
    spread = float(apart @ apart)
    # With few runs, a slope is a guess.
    if len(runs) < 6 or spread < len(runs) * LEAST_DEVIATION**2:
        return level
    return replace(level, slope=float(apart @ values) / spread, spread=spread)


def noise_of(runs: Mapping[str, Sequence[Estimate]]) -> dict[str, Noise]:
    """Return the noise of each benchmark from its estimates in several runs; none for one with fewer than two runs."""
    lines = {name: line_through(each) for name, each in runs.items() if len(each) >= 2}
    freedom = {name: line.runs - (2 if line.spread else 1) for name, line in lines.items()}
    own = {}
    for name, line in lines.items():
        beside = sum((each.value - line.at(each.pace)) ** 2 for each in runs[name])
        own[name] = max(beside / freedom[name], LEAST_DEVIATION**2)
    usual, known_with = _prior(list(own.values()), list(freedom.values())) if own else (0.0, 0.0)
    return {
        name: Noise(
            variance=(freedom[name] * own[name] + known_with * usual) / (freedom[name] + known_with),
            degrees_of_freedom=freedom[name] + known_with,
            line=line,
        )
        for name, line in lines.items()
    }


def _prior(variances: Sequence[float], freedoms: Sequence[int]) -> tuple[float, float]:
    """Return the usual variance among these, with its degrees of freedom: none for a single variance."""
    from scipy import optimize, special  # here: the import takes a tenth of the startup time of a run

    if len(variances) < 2:
        return variances[0], 0.0
    halves = np.array(freedoms) / 2
    logs = np.log(variances) - special.digamma(halves) + np.log(halves)
    spread = float(np.var(logs, ddof=1) - special.polygamma(1, halves).mean())
    half_prior = MANY / 2
    if spread > 2 / MANY:  # trigamma(half_prior) equals the spread
        half_prior = optimize.brentq(lambda half: special.polygamma(1, half) - spread, 1e-9, MANY)
    usual = float(logs.mean() + special.digamma(half_prior)) - math.log(half_prior)
    return math.exp(usual), 2 * half_prior
