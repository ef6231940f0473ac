"""Reading and writing at indices and under masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.quantization import to_int8
from pytest_ascend.emulator.registry import Optional, T, aten
from pytest_ascend.emulator.tensors import Refused


def _indices(given: list[T | None]) -> list[T | None]:
    """Return the indices as torch expects them; torch_npu passes an empty tensor for a dimension without one."""
    return [each if each is not None and each.numel() else None for each in given]


def index_put_(x: T, indices: list[T | None], values: T, accumulate: bool, _: bool) -> None:
    given = _indices(indices)
    if any(each is not None for each in given):  # else all indices are really empty
        aten.index_put_(x, given, values, accumulate)


def gather_v3(x: T, dim: int, index: T, batch_dims: int, _: int) -> T:
    dim %= x.dim()
    batch, sizes = x.shape[:batch_dims], index.shape[batch_dims:]
    rows, wanted = x.reshape(batch.numel(), *x.shape[batch_dims:]), index.reshape(batch.numel(), sizes.numel())
    taken = [row.index_select(dim - batch_dims, each) for row, each in zip(rows, wanted, strict=True)]
    return (torch.stack(taken) if taken else x).reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


#: The reduction with existing values, by torch_npu's numbers.
_REDUCE = {1: "sum", 2: "prod", 3: "amax", 4: "amin", 5: "mean"}


def scatter_(x: T, dim: int, index: T, source: T, mode: int) -> T:
    return x.scatter_reduce_(dim, index, source, _REDUCE[mode]) if mode else x.scatter_(dim, index, source)


def scatter_reduce_(x: T, dim: int, index: T, source: T, mode: int, include_self: bool) -> T:
    """Refuse what CANN refuses on an Atlas A2 and A3."""
    if not (x.dtype is torch.float32 and _REDUCE[mode] == "sum" and include_self):
        raise Refused("scatter_reduce only supports dtype=float32, reduce=sum, include_self=true.")
    return x.scatter_add_(dim, index, source)


def scatter_update_(data: T, indices: T, updates: T, axis: int) -> None:
    """Write ``updates[b]`` to ``data[b]`` from ``indices[b]`` on along the axis, which counts the batch, too."""
    axis %= data.dim()
    for target, start, source in zip(data, indices.tolist(), updates, strict=True):
        target.narrow(axis - 1, start, source.shape[axis - 1]).copy_(source)


_SUM, _MAX = 0, 2  # of bags: 0 sum, 1 mean, 2 max


def embedding_bag(
    weight: T, indices: T, offsets: T, scale: bool, mode: int, *rest: Any
) -> tuple[T, Optional, T, Optional]:
    """Return the bags, and the other results as far as torch_npu allocates them: on an Ascend 950 only useful ones.

    There the sizes have as many entries as there are offsets; the last offset may end the last bag.
    """
    output, bag, size, largest = aten._embedding_bag(weight, indices, offsets, scale, mode, *rest)
    _, _, ends, padding = rest
    if ends and is_950():
        size = torch.cat([size, size.new_zeros(1)])
    return output, None if mode == _SUM and padding < 0 else bag, size, largest if mode == _MAX else None


def embedding_bag_by_name(
    weight: T, indices: T, offsets: T, weights: T | None = None, *, mode: str, padding_idx: int, **how: bool
) -> tuple[T, Optional, T, Optional]:
    """Return the bags, of which bag each index is, their sizes, and the largest elements, as an old torch_npu asks."""
    rest = (how["sparse"], weights, how["include_last_offset"], padding_idx)
    number = ("sum", "mean", "max").index(mode)
    output, bag, size, largest = aten._embedding_bag(weight, indices, offsets, False, number, *rest)
    # For a sum torch_npu makes room for a bag of each index, and drops it.
    return output, bag if bag.numel() else None, size, largest if number == _MAX else None


def coalesce_sparse(distinct: T, places: T, indices: T, values: T) -> tuple[T, T]:
    """Sum the values at the same indices. ``places`` has each element's row among the distinct ones."""
    rows = distinct.numel()
    new_indices = indices.new_empty(rows, indices.shape[1]).index_copy_(0, places.long(), indices)
    return new_indices, values.new_zeros(rows, *values.shape[1:]).index_add_(0, places.long(), values)


_REDUCTIONS: dict[str, Callable[..., T]] = {
    "none": torch.scatter,
    "add": torch.scatter_add,
    "mul": functools.partial(torch.scatter_reduce, reduce="prod"),
}


def top_k_by_name(x: T, count: T, dim: int = -1, largest: bool = True, **_: Any) -> tuple[T, T]:
    """Return values and their indices, sorted; equal values keep the order of their indices."""
    values, places = x.sort(dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, int(count)), places.narrow(dim, 0, int(count))


def quant_scatter(x: T, places: T, updates: T, scales: T, zeros: T | None, axis: int, _: int, _update: int) -> None:
    """Quantize to int8, and write from a place of each batch on; a place may be given with its batch."""
    small = to_int8(updates.float() / scales.float() + (0 if zeros is None else zeros.float()))
    pairs = places.tolist() if places.dim() == 2 else list(enumerate(places.tolist()))
    for source, (batch, start) in zip(small, pairs, strict=True):
        along = axis % x.dim() - 1
        x[batch].narrow(along, start, source.shape[along]).copy_(source)
