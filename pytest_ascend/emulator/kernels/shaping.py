"""Shapes: joining, splitting, repeating, moving and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.microscaling import SHORT, numbers_of, packed, to_grid
from pytest_ascend.emulator.registry import Family, aten
from pytest_ascend.emulator.tensors import FOUR_BITS, Refused

family = Family("shaping")
op = family.op
T = torch.Tensor
L = list[int]

op("aclnnCat(TensorList tensors, int64 dim, out Tensor out)", torch.cat, into=True)
op("aclnnStack(TensorList tensors, int64 dim, out Tensor out)", torch.stack, into=True)
op(
    "aclnnChunkCat(TensorList tensors, int64 dim, int64 numChunks, out Tensor out)",
    aten._chunk_cat.default,
)

op("aclnnFlip(Tensor self, IntArray dims, out Tensor out)", torch.flip)
op("aclnnRoll(Tensor self, IntArray shifts, IntArray dims, out Tensor out)", torch.roll)


def repeat(x: T, repeats: L, out: T) -> None:
    shape = (1,) * (len(repeats) - x.dim()) + x.shape
    # each dimension as two, with the outer one broadcast
    target = out.view([size for pair in zip(repeats, shape, strict=True) for size in pair])
    target.copy_(x.reshape([size for inner in shape for size in (1, inner)]))


op("aclnnRepeat(Tensor self, IntArray repeats, out Tensor out)", repeat, into=True)


# --- repeated elements ---


@family.kernel("aclnnRepeatInterleaveInt(Tensor self, int64 repeats, int64 outputSize, out Tensor out)")
def repeat_interleave_flat(x: T, repeats: Any, size: int) -> T:
    return torch.repeat_interleave(x.flatten(), repeats, output_size=size)


@family.kernel(
    "aclnnRepeatInterleaveIntWithDim(Tensor self, int64 repeats, int64 dim, int64 outputSize, out Tensor out)"
)
def repeat_interleave(x: T, repeats: Any, dim: int, size: int) -> T:
    return torch.repeat_interleave(x, repeats, dim, output_size=size)


op(
    "aclnnRepeatInterleave(Tensor self, Tensor repeats, int64 outputSize, out Tensor out)",
    repeat_interleave_flat,
)
op(
    "aclnnRepeatInterleaveWithDim(Tensor self, Tensor repeats, int64 dim, int64 outputSize, out Tensor out)",
    repeat_interleave,
)
op(
    "aclnnRepeatInterleaveTensor(Tensor repeats, int64 outputSize, out Tensor out)",
    lambda repeats, size: torch.repeat_interleave(repeats, output_size=size),
)


@family.kernel("aclnnRepeatInterleaveGrad(Tensor gradOut, Tensor repeats, int64 axis, out Tensor out)")
def repeat_interleave_backward(grad: T, repeats: T, axis: int) -> T:
    shape = list(grad.shape)
    shape[axis] = repeats.numel()
    return grad.new_zeros(shape).index_add_(axis, torch.repeat_interleave(repeats), grad)


# --- padding ---


def constant_pad_nd(x: T, pad: L, value: float, out: T) -> None:
    """Pad from the last dimension on, by numbers before and after; negative ones crop."""
    inside = out.fill_(value)
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - i
        x = x.narrow(axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-after, 0))
        inside = inside.narrow(axis, max(before, 0), x.shape[axis])
    inside.copy_(x)


op("aclnnConstantPadNd(Tensor self, IntArray pad, Scalar value, out Tensor out)", constant_pad_nd, into=True)


def _densely(function: Callable[..., Any]) -> Callable[..., None]:
    """Use the output's own layout: torch's CPU kernels assume the input's, such as channels last."""

    def body(x: T, pad: L, out: T) -> None:
        if out.is_contiguous():
            function(x.contiguous(), pad, out=out)
        else:
            out.copy_(function(x.contiguous(), pad, out=torch.empty(out.shape, dtype=out.dtype)))

    return body


for _mode in ("Reflection", "Replication"):
    for _d in ("1d", "2d", "3d"):
        _name = f"{_mode.lower()}_pad{_d}"
        _signature = "Tensor self, IntArray padding, out Tensor out"
        op(f"aclnn{_mode}Pad{_d}({_signature})", _densely(getattr(aten, _name).out), into=True)
        op(f"aclnn{_mode}Pad{_d}Backward(Tensor gradOutput, {_signature})", getattr(aten, f"{_name}_backward").default)


op("aclnnInplaceZero(inout Tensor self)", T.zero_)
op("aclnnInplaceOne(inout Tensor self)", lambda x: x.fill_(1))
op("aclnnInplaceFillScalar(inout Tensor self, Scalar value)", T.fill_)
op("aclnnInplaceFillTensor(inout Tensor self, Tensor value)", lambda x, value: x.copy_(value))


@family.kernel("aclnnInplaceCopy(inout Tensor self, Tensor source)")
def copy_(x: T, source: T) -> None:
    if source.is_complex() and not x.is_complex():
        source = source.real  # the CPU would warn, which torch_npu has to do
    x.copy_(source)


@family.kernel("aclnnCast(Tensor self, dtype dtype, out Tensor out)")
def cast(x: T, dtype: torch.dtype | None) -> T:
    """Convert; to four bits to the nearest number, with saturation. Only an Ascend 950 has eight and four bits."""
    if not is_950() and (short := {x.dtype, dtype} & SHORT):
        raise Refused(f"Tensor self and out not implemented for {short.pop()} on this chip.")
    wide = numbers_of(x) if x.dtype is FOUR_BITS else x
    return packed(to_grid(wide, dtype)).view(dtype) if FOUR_BITS and dtype is FOUR_BITS else wide


op("aclnnArange(Scalar start, Scalar end, Scalar step, out Tensor out)", torch.arange, into=True)
op("aclnnRange(Scalar start, Scalar end, Scalar step, out Tensor out)", aten.range.out, into=True)
op("aclnnLinspace(Scalar start, Scalar end, int64 steps, out Tensor out)", torch.linspace, into=True)
op("aclnnLogSpace(Scalar start, Scalar end, int64 steps, double base, out Tensor out)", torch.logspace, into=True)
op("aclnnEye(int64 n, int64 m, out Tensor out)", torch.eye, into=True)


named = family.named


def confusion_transpose(x: T, perm: L, shape: L, transpose_first: bool) -> T:
    return x.permute(perm).reshape(shape) if transpose_first else x.reshape(shape).permute(perm)


@family.kernel_named("AsStrided")
def as_strided(x: T, size: T, stride: T, offset: T) -> T:
    """Return a view of the memory that begins at ``x``, whatever the shape of ``x``."""
    return x.as_strided(size.tolist(), stride.tolist(), x.storage_offset() + int(offset))


@family.kernel_named("Slice")
def cut(x: T, offsets: T, sizes: T) -> T:
    for dim, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        x = x.narrow(dim, start, x.shape[dim] - start if size == -1 else size)
    return x


@family.kernel_named("StridedSlice")
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


@family.kernel_named("Pad")
def pad(x: T, paddings: T) -> T:
    """Pad with zeros: pairs of before and after, first dimension first."""
    pairs = paddings.reshape(-1, 2).tolist()
    return F.pad(x, [size for pair in reversed(pairs) for size in pair])


@family.kernel_named("MaskedFillRange")
def masked_fill_range(x: T, start: T, end: T, value: T, axis: int) -> T:
    """Fill each row from each start to before its end with the range's value; later ranges win."""
    places, filled = torch.arange(x.shape[axis]), x.clone()
    for low, high, number in zip(start, end, value, strict=True):
        inside = (places >= low[:, None]) & (places < high[:, None])
        shape = [size if dim in (0, axis % x.dim()) else 1 for dim, size in enumerate(x.shape)]
        filled = torch.where(inside.view(shape), number, filled)
    return filled


@family.kernel_named("SignBitsPack")
def sign_bits_pack(x: T, size: int) -> T:
    """Return one bit per element, 1 if it is not negative, least significant first; the last byte is padded with -1."""
    flat = x.reshape(-1)
    bits = F.pad(flat >= 0, (0, -len(flat) % 8)).view(-1, 8)
    return (bits << torch.arange(8)).sum(-1).to(torch.uint8).view(size, -1)


@family.kernel_named("SignBitsUnpack")
def sign_bits_unpack(x: T, dtype: int, size: int) -> T:  # noqa: ARG001  the output's says it, too
    bits = (x.reshape(-1, 1) >> torch.arange(8, dtype=torch.uint8)) & 1
    return (bits.float() * 2 - 1).view(size, -1)


@family.kernel_named("OneHotD")
def one_hot(x: T, on_value: T, off_value: T, axis: int, depth: int) -> T:
    hot = x.unsqueeze(-1) == torch.arange(depth)
    made = torch.where(hot, on_value.view(()), off_value.view(()))
    return made if axis == -1 else made.movedim(-1, axis)


named("OneHot", lambda x, depth, on, off, axis: one_hot(x, on, off, axis, int(depth)))


@family.kernel_named("SortV2")
def sort(x: T, axis: int, descending: bool) -> T:
    return x.sort(axis, descending).values


def fill(dims: T, value: T) -> T:
    return value.reshape(()).expand(dims.tolist())


named("BroadcastTo", lambda x, size: x.expand(size.tolist()))
named("Cast", lambda x, dst_type: x)  # noqa: ARG005  the output's dtype says it, too
named("ConfusionTransposeD", confusion_transpose)
named("Fill", fill)
named("Identity", lambda x: x)
named("Transpose", lambda x, perm: x.permute(perm.tolist()))

family.op(
    "aclnnConfusionTranspose(Tensor x, IntArray perm, IntArray shape, bool transposeFirst, out Tensor out)",
    confusion_transpose,
)
family.op("aclnnNpuFormatCast(Tensor srcTensor, out Tensor dstTensor)", lambda x: x)


family.op(
    "aclnnSplitWithSize(Tensor self, IntArray splitSize, int64 dim, out TensorList out)",
    lambda x, sizes, dim: list(x.split(sizes, dim)),
)


def _filled(x: T, dim: int, index: L, value: Any) -> T:
    return x.index_fill(dim, torch.tensor(index, dtype=torch.int64), value)


family.op("aclnnIndexFillTensor(Tensor self, int64 dim, IntArray index, Scalar value, out Tensor out)", _filled)
family.op(
    "aclnnInplaceIndexFillTensor(inout Tensor self, int64 dim, IntArray index, Scalar value)",
    lambda x, dim, index, value: x.index_fill_(dim, torch.tensor(index, dtype=torch.int64), value),
)
family.op(
    "aclnnUnfoldGrad(Tensor gradOut, IntArray inputSizes, int64 dim, int64 size, int64 step, out Tensor gradIn)",
    aten.unfold_backward.default,
)

named("ReverseV2", lambda x, axes: x.flip(axes.tolist()))
named("Tile", lambda x, repeats: x.repeat(repeats.tolist()))
named("Tril", lambda x, diagonal=0: x.tril(diagonal))
named("Triu", lambda x, diagonal=0: x.triu(diagonal))
named(
    "LogSpaceD", lambda _, start, end, steps, base=10.0, **__: torch.logspace(start, end, int(steps), base), wide=True
)
named("Range", lambda first, end, step: torch.arange(first.item(), end.item(), step.item()))
named("ConcatD", lambda *parts, concat_dim, **_: torch.cat(parts, concat_dim))
named("Pack", lambda *parts, axis, **_: torch.stack(parts, axis))
named("ZerosLike", torch.zeros_like)
named("OnesLike", torch.ones_like)
