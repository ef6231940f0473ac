"""Whether a device sees the same classes in an image: its five best are the right ones, or as good as those."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_ascend.precision.allowances import ALLOWANCES


def agreement(classes: Tensor, exact: Tensor) -> float:
    """Return the share of the right five classes that ``classes`` (N, 5) has too; ``exact`` are logits (N, classes)."""
    right = exact.topk(5).indices
    return float((classes[:, :, None] == right[:, None, :]).any(1).double().mean())


def lost(classes: Tensor, exact: Tensor, honest: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return (N, 5) how far the exact logit of each chosen class lies below the fifth best, beyond what may be; else 0.

    Two logits may change places if both may be off by what lies between them: by what the judge allows one element,
    given ``honest`` logits. A class that is named twice lost everything.
    """
    off = max(float((each.double() - exact).abs().max()) for each in honest)
    ulp = torch.finfo(dtype).eps * float(exact.abs().max())
    reach = 2 * (ALLOWANCES.element_ulps * ulp + ALLOWANCES.largest * off)
    fifth = exact.topk(5).values[:, 4:]
    missing = (fifth - reach - exact.gather(1, classes)).clamp(min=0)
    ordered, order = classes.sort(1)
    twice = torch.zeros_like(classes, dtype=torch.bool)
    twice[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return missing.masked_fill(twice.gather(1, order.argsort(1)), float("inf"))
