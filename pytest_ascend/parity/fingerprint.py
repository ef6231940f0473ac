"""A few numbers for a tensor of any size: quick enough for every layer of a model, and for every step of a training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from pytest_ascend.run import inputs

#: Elements kept as they are, and sums with random signs.
KEPT = BUCKETS = 64
#: Signs are drawn for so many elements and then repeat: a prime number of buckets, so that no image, channel or row of
#: a tensor begins where another did, and exchanged ones are seen.
PERIOD = BUCKETS * 1021


def fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the fingerprint of each tensor."""
    return {name: fingerprint(tensor) for name, tensor in tensors.items()}


def fingerprint(tensor: Tensor) -> Tensor:
    """Return a vector on the CPU in the tensor's dtype: the whole tensor, or ``KEPT`` elements and ``BUCKETS`` sums.

    The sums go over all elements, with random signs, and are about as large as the elements: an error anywhere is in
    one of them, and honest errors of many elements show as what they are.
    """
    flat = tensor.detach().to("cpu", copy=True).flatten()
    if flat.numel() <= KEPT + BUCKETS:
        return flat
    places = torch.arange(KEPT) * (flat.numel() - 1) // (KEPT - 1)
    return torch.cat([flat[places], _sums(flat).to(flat.dtype)])


def _sums(flat: Tensor) -> Tensor:
    rows = -(-flat.numel() // BUCKETS)
    whole = flat.numel() // PERIOD * PERIOD
    total = torch.zeros(PERIOD, dtype=torch.float64)
    total[: flat.numel() - whole] = flat[whole:].double()
    total += flat[:whole].reshape(-1, PERIOD).sum(0, dtype=torch.float64)
    # A power of two near the square root of the number of elements in a sum.
    return (total * _signs()).reshape(-1, BUCKETS).sum(0) * 2.0 ** -((rows.bit_length() - 1) // 2)


@cache
def _signs() -> Tensor:
    return inputs.signs("parity/fingerprint", PERIOD)
