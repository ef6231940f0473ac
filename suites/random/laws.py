"""What numbers have to be drawn from: which ones are possible, and cells of known probability."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

T = torch.Tensor

#: Cells of a continuous law.
CELLS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """A distribution: ``possible`` tells which elements can be drawn at all, ``cell`` which cell each is in."""

    possible: Callable[[T], T]
    cell: Callable[[T], T]
    probabilities: tuple[float, ...]


def continuous(share_below: Callable[[T], T], possible: Callable[[T], T]) -> Law:
    """Return a law by its distribution function, in cells of equal probability."""

    def cell(x: T) -> T:
        return (share_below(x.double()) * CELLS).floor().long().clamp(0, CELLS - 1)

    return Law(possible=lambda x: possible(x) & x.isfinite(), cell=cell, probabilities=(1 / CELLS,) * CELLS)


def discrete(probabilities: tuple[float, ...], first: int = 0, *, step: float = 1, more: bool = False) -> Law:
    """Return a law of the numbers ``first``, ``first + step`` ...; with ``more``, the last cell holds all others."""
    last = len(probabilities) - 1

    def index(x: T) -> T:
        return (x.double() - first) / step

    def possible(x: T) -> T:
        return (index(x) >= 0) & (index(x) == index(x).round()) & (index(x).isfinite() if more else index(x) <= last)

    return Law(possible=possible, cell=lambda x: index(x).long().clamp(0, last), probabilities=probabilities)


def even(count: int, first: int = 0) -> Law:
    """Return the law of so many consecutive integers."""
    return discrete((1 / count,) * count, first)


def uniform(low: float, high: float) -> Law:
    """Return the law of numbers in [low, high); a 16-bit format may round up to the end."""
    return continuous(lambda x: (x - low) / (high - low), lambda x: (x >= low) & (x <= high))


def below_one() -> Law:
    """Return the law of numbers in [0, 1), of which 1 is none in any format."""
    return continuous(lambda x: x, lambda x: (x >= 0) & (x < 1))


def normal(mean: float = 0.0, std: float = 1.0) -> Law:
    """Return the normal law; beyond 9 standard deviations nothing is ever drawn."""
    return continuous(lambda x: torch.special.ndtr((x - mean) / std), lambda x: (x.double() - mean).abs() <= 9 * std)


def exponential(rate: float) -> Law:
    """Return the exponential law, without 0: its logarithm is taken."""
    return continuous(lambda x: -torch.expm1(-rate * x), lambda x: x > 0)


def cauchy(median: float, scale: float) -> Law:
    """Return Cauchy's law. A 16-bit format cannot hold its tails: what overflowed is possible."""
    law = continuous(lambda x: torch.atan((x - median) / scale) / math.pi + 0.5, torch.isfinite)
    return Law(possible=lambda x: ~x.isnan(), cell=law.cell, probabilities=law.probabilities)


def log_normal(mean: float, std: float) -> Law:
    """Return the law of numbers whose logarithm is normal."""
    return continuous(lambda x: torch.special.ndtr((x.log() - mean) / std), lambda x: x > 0)


def geometric(probability: float) -> Law:
    """Return the law of the number of trials until a success."""
    shares = [probability * (1 - probability) ** k for k in range(12)]
    return discrete((*shares, 1 - sum(shares)), 1, more=True)


def poisson(rate: float) -> Law:
    """Return Poisson's law."""
    shares = [math.exp(-rate) * rate**k / math.factorial(k) for k in range(15)]
    return discrete((*shares, 1 - sum(shares)), more=True)


def bits(high: int, *, low_bits: bool) -> Law:
    """Return the law of integers in [0, high), in cells by their highest or their lowest four bits."""
    scale = high // CELLS

    def cell(x: T) -> T:
        return (x.long() % CELLS) if low_bits else (x.long() // scale).clamp(0, CELLS - 1)

    return Law(possible=lambda x: (x >= 0) & (x.double() <= high), cell=cell, probabilities=(1 / CELLS,) * CELLS)
