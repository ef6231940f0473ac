"""Tensors in pieces: any layout, any device, one element order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

#: Elements in a piece fetched from a device other than the CPU: few transfers, little memory.
FETCHED_AT_A_TIME = 1 << 20


def pieces(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Yield flat pieces of at most ``size`` elements of tensors of equal shape, in row-major order, on the CPU.

    Nothing is copied of tensors that are contiguous on the CPU, and never more than one piece of the others.
    """
    if any(each.device.type != "cpu" for each in tensors) and size < FETCHED_AT_A_TIME:
        for fetched in pieces(tensors, FETCHED_AT_A_TIME):
            yield from _flat(fetched, size)
    elif all(each.is_contiguous() for each in tensors) or tensors[0].numel() <= size:
        yield from _flat([each.reshape(-1) for each in tensors], size)
    else:
        yield from _rows(tensors, size)


def _flat(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    length = tensors[0].numel()
    if length <= size:
        yield [each.cpu() for each in tensors]
        return
    for start in range(0, length, size):
        yield [each[start : start + size].cpu() for each in tensors]


def _rows(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Cut along the first dimension; rows that are too large themselves are cut further."""
    rows, row = tensors[0].shape[0], tensors[0][0].numel()
    step = max(1, size // row)
    for start in range(0, rows, step):
        part = [each[start : start + step] for each in tensors]
        if row <= size:
            yield [each.reshape(-1).cpu() for each in part]
        else:
            yield from pieces([each[0] for each in part], size)
