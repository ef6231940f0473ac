"""Moving values: joining, splitting, repeating and padding; reading and writing at indices and under masks."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from pytest_ascend.emulator.kernels.quantization import SHORT, numbers_of, packed, to_grid, to_int8  # noqa: F401  (rows)
from pytest_ascend.emulator.registry import T
from pytest_ascend.emulator.tensors import FOUR_BITS  # noqa: F401  (a row reads it)


def converted(value: float, x: T) -> float:
    """Return a number converted to a tensor's dtype as in C, like CANN (ConvertToTensor); torch rejects it."""
    return value if x.is_floating_point() or x.is_complex() else torch.tensor(value).to(x.dtype).item()


def cut(x: T, offsets: T, sizes: T) -> T:
    for dim, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        x = x.narrow(dim, start, x.shape[dim] - start if size == -1 else size)
    return x


def strided_slice(x: T, begin: T, end: T, strides: T, **masks: int) -> T:
    """Index with successive entries of begin, end and stride, like TensorFlow's operator of this name.

    Each mask has a bit for each entry: begin or end is ignored, or the entry is an ellipsis, a new dimension, or an
    index whose dimension disappears.
    """
    entries = list(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True))
    marks = [{kind for kind, mask in masks.items() if mask >> place & 1} for place in range(len(entries))]
    consumed = sum(not each & {"ellipsis_mask", "new_axis_mask"} for each in marks)
    skipped, axis = x.dim() - consumed, 0
    for (first, last, step), mark in zip(entries, marks, strict=True):
        if "ellipsis_mask" in mark:
            axis += skipped
        elif "new_axis_mask" in mark:
            x, axis = x.unsqueeze(axis), axis + 1
        elif "shrink_axis_mask" in mark:
            x = x.select(axis, first)
        else:
            ends = (None if "begin_mask" in mark else first, None if "end_mask" in mark else last)
            places = range(x.shape[axis])[slice(*ends, step)]
            x, axis = x.index_select(axis, torch.tensor(places, dtype=torch.int64)), axis + 1
    return x


def masked_fill_range(x: T, start: T, end: T, value: T, axis: int) -> T:
    """Fill each row from each start to before its end with the range's value; later ranges win."""
    places, filled = torch.arange(x.shape[axis]), x.clone()
    for low, high, number in zip(start, end, value, strict=True):
        inside = (places >= low[:, None]) & (places < high[:, None])
        shape = [size if dim in (0, axis % x.dim()) else 1 for dim, size in enumerate(x.shape)]
        filled = torch.where(inside.view(shape), number, filled)
    return filled


def _indices(given: list[T | None]) -> list[T | None]:
    """Return the indices as torch expects them; torch_npu passes an empty tensor for a dimension without one."""
    return [each if each is not None and each.numel() else None for each in given]


#: The reduction with existing values, by torch_npu's numbers.
_REDUCE = {1: "sum", 2: "prod", 3: "amax", 4: "amin", 5: "mean"}


def scatter_(x: T, dim: int, index: T, source: T, mode: int) -> T:
    return x.scatter_reduce_(dim, index, source, _REDUCE[mode]) if mode else x.scatter_(dim, index, source)


def scatter_update_(data: T, places: T, updates: T, axis: int) -> None:
    """Write each update at its position along the axis, which also counts the batch; positions may name their batch."""
    pairs = places.tolist() if places.dim() == 2 else enumerate(places.tolist())
    for source, (batch, start) in zip(updates, pairs, strict=True):
        along = axis % data.dim() - 1
        data[batch].narrow(along, start, source.shape[along]).copy_(source)


_SUM, _MAX = 0, 2  # of bags: 0 sum, 1 mean, 2 max


_REDUCTIONS: dict[str, Callable[..., T]] = {
    "none": torch.scatter,
    "add": torch.scatter_add,
    "mul": functools.partial(torch.scatter_reduce, reduce="prod"),
}
