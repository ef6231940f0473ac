"""Shapes: joining, splitting, repeating, moving and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.microscaling import SHORT, numbers_of, packed, to_grid
from pytest_ascend.emulator.registry import L, T
from pytest_ascend.emulator.tensors import FOUR_BITS, Refused


def repeat(x: T, repeats: L, out: T) -> None:
    shape = (1,) * (len(repeats) - x.dim()) + x.shape
    # each dimension as two, with the outer one broadcast
    target = out.view([size for pair in zip(repeats, shape, strict=True) for size in pair])
    target.copy_(x.reshape([size for inner in shape for size in (1, inner)]))


def repeat_interleave_backward(grad: T, repeats: T, axis: int) -> T:
    shape = list(grad.shape)
    shape[axis] = repeats.numel()
    return grad.new_zeros(shape).index_add_(axis, torch.repeat_interleave(repeats), grad)


def constant_pad_nd(x: T, pad: L, value: float, out: T) -> None:
    """Pad from the last dimension on, by numbers before and after; negative ones crop."""
    inside = out.fill_(value)
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - i
        x = x.narrow(axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-after, 0))
        inside = inside.narrow(axis, max(before, 0), x.shape[axis])
    inside.copy_(x)


def densely(function: Callable[..., Any], x: T, pad: L, out: T) -> None:
    """Use the output's own layout: torch's CPU kernels assume the input's, such as channels last."""
    if out.is_contiguous():
        function(x.contiguous(), pad, out=out)
    else:
        out.copy_(function(x.contiguous(), pad, out=torch.empty(out.shape, dtype=out.dtype)))


def copy_(x: T, source: T) -> None:
    if source.is_complex() and not x.is_complex():
        source = source.real  # the CPU would warn, which torch_npu has to do
    x.copy_(source)


def cast(x: T, dtype: torch.dtype | None) -> T:
    """Convert; to four bits to the nearest number, with saturation. Only an Ascend 950 has eight and four bits."""
    if not is_950() and (short := {x.dtype, dtype} & SHORT):
        raise Refused(f"Tensor self and out not implemented for {short.pop()} on this chip.")
    wide = numbers_of(x) if x.dtype is FOUR_BITS else x
    return packed(to_grid(wide, dtype)).view(dtype) if FOUR_BITS and dtype is FOUR_BITS else wide


def cut(x: T, offsets: T, sizes: T) -> T:
    for dim, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        x = x.narrow(dim, start, x.shape[dim] - start if size == -1 else size)
    return x


def strided_slice(x: T, begin: T, end: T, strides: T, **masks: int) -> T:
    """Index with one entry of begin, end and stride after another, like TensorFlow's operator of this name.

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


def one_hot(x: T, on: T, off: T, axis: int, depth: int) -> T:
    hot = torch.where(x.unsqueeze(-1) == torch.arange(depth), on.view(()), off.view(()))
    return hot.movedim(-1, axis)
