"""What is kept of a large tensor: some elements as they are, and a sketch that every element goes into.

Golden and device result are observed in the same way, so that a few hundred bytes stand for millions of elements. A
deviation that misses the kept elements still changes the sketch, in which it cannot be averaged away: each bucket is
a sum with random signs (a count sketch: M. Charikar, K. Chen, M. Farach-Colton, "Finding frequent items in data
streams", ICALP 2002), and so the error of the sketch is as large as the error of the whole tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pytest_ascend.run import inputs

#: Elements kept as they are, and buckets of a sketch.
KEPT = 64
BUCKETS = 64


def observe(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each tensor as a vector on the CPU, in its dtype: whole, or ``KEPT`` elements and then its sketch."""
    return {name: _observe(name, tensor.detach().to("cpu").flatten()) for name, tensor in tensors.items()}


def _observe(name: str, flat: Tensor) -> Tensor:
    if flat.numel() <= KEPT + BUCKETS:
        return flat
    return torch.cat([flat[positions(name, flat.numel())], sketch(name, flat).to(flat.dtype)])


def positions(name: str, size: int) -> Tensor:
    """Return the places of the kept elements: the first, the last, and one from each of equal parts between."""
    edges = torch.arange(KEPT + 1) * size // KEPT
    offsets = inputs.integers(f"models/positions/{name}", (KEPT,), low=0, high=2**31)
    chosen = edges[:-1] + offsets % (edges[1:] - edges[:-1])
    chosen[0], chosen[-1] = 0, size - 1
    return chosen


def sketch(name: str, flat: Tensor) -> Tensor:
    """Return float64 sums over every ``BUCKETS``-th element, with random signs, of about the elements' own size."""
    rows = -(-flat.numel() // BUCKETS)
    padded = torch.zeros(rows * BUCKETS, dtype=torch.float64)
    padded[: flat.numel()] = flat
    padded *= inputs.signs(f"models/signs/{name}", rows * BUCKETS)
    # A power of two near sqrt(rows): the sums get the size of the elements, and no rounding.
    return padded.reshape(rows, BUCKETS).sum(0) * 2.0 ** -((rows.bit_length() - 1) // 2)
