"""What has to come out of a collective, in float64 or integers, from what all ranks sent; and how far off it may be."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .collectives import OPERATIONS, SIZES, sent, uneven_counts

T = torch.Tensor


def size_of(name: str) -> int:
    return SIZES.get(name, SIZES["many"])


def reduction(parts: Sequence[T], operation: str) -> tuple[T, T]:
    """Return the result in float64 or int64, and how far a result may be off.

    A sum of n numbers, each step rounded to u, is within (n - 1) u of the sum of their magnitudes, in whatever order
    (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2); a product within n u of itself; a mean
    is rounded once more. What is smaller than the dtype's least step is within half of that.
    """
    dtype = parts[0].dtype
    wide = torch.stack(list(parts)).to(torch.float64 if dtype.is_floating_point else torch.int64)
    made = {
        "SUM": lambda: wide.sum(0),
        "AVG": lambda: wide.mean(0),
        "PRODUCT": lambda: wide.prod(0),
        "MAX": lambda: wide.amax(0),
        "MIN": lambda: wide.amin(0),
    }[OPERATIONS.get(operation, "SUM")]()
    if not dtype.is_floating_point or operation in ("max", "min"):
        return made, torch.zeros_like(made, dtype=torch.float64)
    info, n = torch.finfo(dtype), len(parts)
    unit = info.eps / 2
    if operation == "product":
        return made, 1.01 * n * unit * made.abs() + n * info.smallest_normal * info.eps
    size = wide.abs().sum(0) / (n if operation == "average" else 1)
    return made, 1.01 * n * unit * size + n * info.smallest_normal * info.eps


def worst(actual: T, expected: T, allowed: T) -> float:
    """Return the largest error, as a share of what is allowed; infinite where any is off that had to be exact."""
    if actual.shape != expected.shape:
        return float("inf")
    if not actual.numel():
        return 0.0
    error = (actual.to(torch.float64) - expected.to(torch.float64)).abs()
    share = torch.where(error == 0, torch.zeros_like(error), error / allowed)
    return float(torch.where(share.isnan(), torch.full_like(share, float("inf")), share).max())


def moved(how: str, dtype: str, name: str, rank: int, count: int) -> T:
    """Return what a rank has to have after a movement, bit for bit."""
    size = SIZES[name]
    all_sent = [sent(each, size, dtype) for each in range(count)]
    if how in (
        "all_gather_into_tensor",
        "all_gather",
        "all_gather.strided",
        "broadcast",
        "all_to_all_single",
        "all_to_all",
    ):
        return torch.cat(all_sent)
    if how == "all_gather.uneven":
        cut = [each[: size - index] if size > count else each for index, each in enumerate(all_sent)]
        return torch.cat(cut)
    if how == "gather":
        return torch.cat(all_sent) if rank == 0 else all_sent[0][:0]
    if how == "scatter":
        root = all_sent[count - 1]
        return root ^ bool(rank % 2) if root.dtype is torch.bool else root + rank
    if how == "all_to_all_single.uneven":
        counts, parts = uneven_counts(count, size), []
        for other, each in enumerate(all_sent):
            start = sum(counts[other][:rank])
            parts.append(torch.cat([each] * count)[start : start + counts[other][rank]])
        return torch.cat(parts)
    return all_sent[(rank - 1) % count]  # a ring


def scattered(operation: str, dtype: str, name: str, rank: int, count: int) -> tuple[T, T]:
    size = SIZES[name]
    parts = [sent(each, size * count, dtype)[rank * size : (rank + 1) * size] for each in range(count)]
    return reduction(parts, operation)
