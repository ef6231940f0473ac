"""Losses. Reductions have PyTorch's numbers: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.kernels.random import bits_of, in_bits  # noqa: F401  (a row reads ``in_bits``)
from pytest_ascend.emulator.registry import Optional, T

#: Stands for minus infinity where a mask excludes.
_MASKED = -10000.0


def _loss(shares: T, target: T, weight: Optional, reduction: str | None, ignored: int, smoothing: float) -> T:
    """Return the loss of log-probabilities; their softmax is the same."""
    return F.cross_entropy(
        shares, target.long(), weight, ignore_index=ignored, reduction=reduction or "mean", label_smoothing=smoothing
    )


def _left_out(mask: Optional, like: T, triangular: bool) -> T:
    if triangular or mask is None:
        return torch.ones(like.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


# A cross entropy with classes split among devices, each with those from vocabStartIndex to vocabEndIndex. Source:
# CANN's pages of the three operators. Logits are (rows, classes), all other tensors have one number per row.
