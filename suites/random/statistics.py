"""Whether numbers were drawn as they should be: chi-square by block, dependence of neighbours, repeated blocks.

Every statistic gives a probability: that of a correct generator looking at least as bad. A case multiplies the smallest
one by the number of statistics it looked at (Bonferroni), and alarms below :data:`FALSE_ALARM`. With fewer than
:data:`CASES_LIMIT` cases a run accuses a correct generator once in a million runs at most, whatever the dependence of
the statistics on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

#: The share of runs in which one case accuses a correct generator, and how many cases there may be.
FALSE_ALARM = 1e-8
CASES_LIMIT = 100

#: Elements that are looked at together. What a kernel writes at a time on one core is of this order.
BLOCK = 4096


class Finding(NamedTuple):
    """One statistic: what it looked at, and how probable it is that a correct generator looks as bad."""

    what: str
    probability: float


def judge(cells: torch.Tensor, probabilities: Sequence[float]) -> Finding:
    """Return the worst finding on a sequence of cells (int64), corrected for the number of findings.

    Raises ValueError for probabilities that do not add up to 1.
    """
    if abs(sum(probabilities) - 1) > 1e-9:
        raise ValueError(f"probabilities add up to {sum(probabilities)}")
    found = list(_findings(cells, torch.tensor(probabilities, dtype=torch.float64)))
    worst = min(found, key=lambda each: each.probability)
    return Finding(worst.what, min(1.0, worst.probability * len(found)))


def repeated(values: torch.Tensor) -> str:
    """Say which blocks hold the same numbers one by one; "" where none do. Blocks of a few bits would, by chance."""
    blocks = _blocks(values.reshape(-1).contiguous()).cpu()
    seen: dict[bytes, int] = {}
    for number, block in enumerate(blocks):
        key = block.view(torch.uint8).numpy().tobytes()
        if key in seen:
            return f"block {number} of {BLOCK} elements repeats block {seen[key]}"
        seen[key] = number
    return ""


def _findings(cells: torch.Tensor, probabilities: torch.Tensor) -> Iterator[Finding]:
    count = len(probabilities)
    total = torch.bincount(cells, minlength=count)
    yield Finding("all elements", _chi_square(total.unsqueeze(0), probabilities)[0])
    blocks = _blocks(cells)
    places = torch.arange(len(blocks)).unsqueeze(1) * count
    counts = torch.bincount((blocks + places).reshape(-1), minlength=len(blocks) * count).view(-1, count)
    # A tensor is no whole number of blocks: its end is looked at once more.
    end = torch.bincount(cells[-BLOCK:], minlength=count)
    for number, each in enumerate(_chi_square(torch.cat([counts, end.unsqueeze(0)]), probabilities)):
        place = f"elements from {number * BLOCK} on" if number < len(blocks) else "the last elements"
        yield Finding(place, each)
    score = _scores(probabilities)[cells]
    for distance in (1, 2, 8, 64, 256, BLOCK):
        yield Finding(f"elements {distance} apart", _dependence(score, distance))


def _blocks(values: torch.Tensor) -> torch.Tensor:
    whole = values.numel() // BLOCK * BLOCK
    return values[:whole].view(-1, BLOCK)


def _chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> list[float]:
    """Give, for each row, the probability of counts as uneven as these (Pearson); rare cells are taken together."""
    expected = probabilities * counts[0].sum()
    rare = expected < 20
    if bool(rare.any()):
        counts = torch.cat([counts[:, ~rare], counts[:, rare].sum(1, keepdim=True)], 1)
        expected = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    statistic = ((counts - expected).square() / expected.clamp(min=1e-300)).sum(1)
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    found: list[float] = torch.special.gammaincc(freedom, statistic / 2).tolist()
    return found


def _scores(probabilities: torch.Tensor) -> torch.Tensor:
    """Return each cell a number, such that a drawn one has mean 0 and variance 1."""
    ranks = torch.arange(len(probabilities), dtype=torch.float64)
    mean = (probabilities * ranks).sum()
    return (ranks - mean) / (probabilities * (ranks - mean).square()).sum().sqrt()


def _dependence(score: torch.Tensor, distance: int) -> float:
    """Return the probability of a correlation as strong as this between elements that far apart."""
    count = len(score) - distance
    if count < BLOCK:
        return 1.0
    correlation = float((score[:-distance] * score[distance:]).sum()) / math.sqrt(count)
    return math.erfc(abs(correlation) / math.sqrt(2))
