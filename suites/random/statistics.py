"""Tests of random numbers: chi-square by block, dependence of neighbours, repeated blocks.

Every statistic gives a p-value: the probability that a correct generator looks at least as bad. A case multiplies its
smallest p-value by its number of statistics (Bonferroni), and fails below :data:`FALSE_ALARM`. With fewer than
:data:`CASES_LIMIT` cases, a run rejects a correct generator at most once in a million runs, whatever the dependence
between the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

T = torch.Tensor

#: Number of cells into which a continuous distribution is divided.
CELLS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A distribution: ``possible`` returns which elements can occur, ``cell`` the index of each element's cell."""

    possible: Callable[[T], T]
    cell: Callable[[T], T]
    probabilities: tuple[float, ...]


def continuous(share_below: Callable[[T], T], possible: Callable[[T], T]) -> Distribution:
    """Return a distribution with this cumulative distribution function, in cells of equal probability."""
    return Distribution(
        possible=lambda x: possible(x) & x.isfinite(),
        cell=lambda x: (share_below(x.double()) * CELLS).floor().long().clamp(0, CELLS - 1),
        probabilities=(1 / CELLS,) * CELLS,
    )


def discrete(probabilities: tuple[float, ...], first: int = 0, *, step: float = 1, more: bool = False) -> Distribution:
    """Return a distribution of ``first``, ``first + step`` ...; with ``more``, the last cell includes larger values."""
    last = len(probabilities) - 1

    def index(x: T) -> T:
        return (x.double() - first) / step

    def possible(x: T) -> T:
        return (index(x) >= 0) & (index(x) == index(x).round()) & (index(x).isfinite() if more else index(x) <= last)

    return Distribution(possible=possible, cell=lambda x: index(x).long().clamp(0, last), probabilities=probabilities)


def even(count: int, first: int = 0) -> Distribution:
    return discrete((1 / count,) * count, first)


def uniform(low: float, high: float) -> Distribution:
    """Return the distribution of numbers in [low, high); a 16-bit format may round up to ``high``."""
    return continuous(lambda x: (x - low) / (high - low), lambda x: (x >= low) & (x <= high))


def below_one() -> Distribution:
    """Return the distribution of numbers in [0, 1), without 1 in any format."""
    return continuous(lambda x: x, lambda x: (x >= 0) & (x < 1))


def normal(mean: float = 0.0, std: float = 1.0) -> Distribution:
    """Return the normal distribution; numbers beyond 9 standard deviations count as impossible."""
    return continuous(lambda x: torch.special.ndtr((x - mean) / std), lambda x: (x.double() - mean).abs() <= 9 * std)


def exponential(rate: float) -> Distribution:
    return continuous(lambda x: -torch.expm1(-rate * x), lambda x: x > 0)


def cauchy(median: float, scale: float) -> Distribution:
    """Return Cauchy's distribution. Overflow is allowed, as a 16-bit format cannot hold its tails."""
    finite = continuous(lambda x: torch.atan((x - median) / scale) / math.pi + 0.5, torch.isfinite)
    return replace(finite, possible=lambda x: ~x.isnan())


def log_normal(mean: float, std: float) -> Distribution:
    return continuous(lambda x: torch.special.ndtr((x.log() - mean) / std), lambda x: x > 0)


def half_gamma(rate: float) -> Distribution:
    """Return the gamma distribution of shape 1/2: that of a squared normal number divided by 2 ``rate``."""
    return continuous(lambda x: torch.erf((rate * x).sqrt()), lambda x: x >= 0)


def geometric(probability: float) -> Distribution:
    shares = [probability * (1 - probability) ** k for k in range(12)]
    return discrete((*shares, 1 - sum(shares)), 1, more=True)


def poisson(rate: float) -> Distribution:
    shares = [math.exp(-rate) * rate**k / math.factorial(k) for k in range(15)]
    return discrete((*shares, 1 - sum(shares)), more=True)


def bits(high: int, *, low_bits: bool) -> Distribution:
    """Return the distribution of integers in [0, high), in cells by their highest or lowest four bits."""
    return Distribution(
        possible=lambda x: (x >= 0) & (x.double() <= high),
        cell=lambda x: x.long() % CELLS if low_bits else (x.long() // (high // CELLS)).clamp(0, CELLS - 1),
        probabilities=(1 / CELLS,) * CELLS,
    )


#: The share of runs in which one case rejects a correct generator, and the largest number of cases.
FALSE_ALARM = 5e-9
CASES_LIMIT = 200

#: Elements per block: about as many as one core of a kernel writes at a time.
BLOCK = 4096


class Finding(NamedTuple):
    """One statistic: what it tested, and its p-value for a correct generator."""

    what: str
    probability: float


def judge(cells: torch.Tensor, probabilities: Sequence[float]) -> Finding:
    """Return the worst finding on a sequence of cells (int64). Raise ValueError unless probabilities add up to 1."""
    if abs(sum(probabilities) - 1) > 1e-9:
        raise ValueError(f"probabilities add up to {sum(probabilities)}")
    return worst_of(list(_findings(cells, torch.tensor(probabilities, dtype=torch.float64))))


def worst_of(found: Sequence[Finding]) -> Finding:
    """Return the worst finding, its p-value multiplied by the number of findings."""
    worst = min(found, key=lambda each: each.probability, default=Finding("", 1.0))
    return Finding(worst.what, min(1.0, worst.probability * max(len(found), 1)))


def repeated(values: torch.Tensor) -> str:
    """Return which blocks are identical, or "". Blocks of elements with few bits may be identical by chance."""
    seen: dict[bytes, int] = {}
    for number, block in enumerate(_blocks(values.reshape(-1).contiguous()).cpu()):
        first = seen.setdefault(block.view(torch.uint8).numpy().tobytes(), number)
        if first != number:
            return f"block {number} of {BLOCK} elements repeats block {first}"
    return ""


def _findings(cells: torch.Tensor, probabilities: torch.Tensor) -> Iterator[Finding]:
    count = len(probabilities)
    total = torch.bincount(cells, minlength=count)
    yield Finding("all elements", chi_square(total.unsqueeze(0), probabilities)[0])
    blocks = _blocks(cells)
    places = torch.arange(len(blocks)).unsqueeze(1) * count
    counts = torch.bincount((blocks + places).reshape(-1), minlength=len(blocks) * count).view(-1, count)
    # A tensor is not a multiple of blocks: its last elements form a further, overlapping block.
    end = torch.bincount(cells[-BLOCK:], minlength=count)
    for number, each in enumerate(chi_square(torch.cat([counts, end.unsqueeze(0)]), probabilities)):
        place = f"elements from {number * BLOCK} on" if number < len(blocks) else "the last elements"
        yield Finding(place, each)
    # One score per cell, so that a random element's score has mean 0 and variance 1.
    ranks = torch.arange(len(probabilities), dtype=torch.float64)
    mean = (probabilities * ranks).sum()
    score = ((ranks - mean) / (probabilities * (ranks - mean).square()).sum().sqrt())[cells]
    for distance in (1, 2, 8, 64, 256, BLOCK):
        pairs = len(score) - distance
        correlation = float((score[:-distance] * score[distance:]).sum()) / math.sqrt(pairs) if pairs >= BLOCK else 0.0
        yield Finding(f"elements {distance} apart", math.erfc(abs(correlation) / math.sqrt(2)))


def _blocks(values: torch.Tensor) -> torch.Tensor:
    return values[: values.numel() // BLOCK * BLOCK].view(-1, BLOCK)


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> list[float]:
    """Return the p-value of each row of counts (Pearson's chi-square); rare cells are merged."""
    expected = probabilities * counts[0].sum()
    rare = expected < 20
    if bool(rare.any()):
        counts = torch.cat([counts[:, ~rare], counts[:, rare].sum(1, keepdim=True)], 1)
        expected = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    statistic = ((counts - expected).square() / expected.clamp(min=1e-300)).sum(1)
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    return [float(each) for each in torch.special.gammaincc(freedom, statistic / 2)]
