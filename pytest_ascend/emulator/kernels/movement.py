"""What moves, repeats, casts or fills elements in torch_npu's own functions: operators that are called by name."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.registry import Family, aten

family = Family("movement")
named = family.named
T = torch.Tensor
L = list[int]


def confusion_transpose(x: T, perm: L, shape: L, transpose_first: bool) -> T:
    return x.permute(perm).reshape(shape) if transpose_first else x.reshape(shape).permute(perm)


@family.kernel_named("AsStrided")
def as_strided(x: T, size: T, stride: T, offset: T) -> T:
    """Return a view of the memory that begins with ``x``, whatever the shape of ``x``."""
    return x.as_strided(size.tolist(), stride.tolist(), x.storage_offset() + int(offset))


@family.kernel_named("Slice")
def cut(x: T, offsets: T, sizes: T) -> T:
    for dim, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        x = x.narrow(dim, start, x.shape[dim] - start if size == -1 else size)
    return x


@family.kernel_named("Pad")
def pad(x: T, paddings: T) -> T:
    """Pad with zeros: pairs of before and after, the first dimension first."""
    pairs = paddings.reshape(-1, 2).tolist()
    return F.pad(x, [size for pair in reversed(pairs) for size in pair])


@family.kernel_named("MaskedFillRange")
def masked_fill_range(x: T, start: T, end: T, value: T, axis: int) -> T:
    """Fill, in each row of all, from start to before end, with the value of that range; later ranges win."""
    places, filled = torch.arange(x.shape[axis]), x.clone()
    for low, high, number in zip(start, end, value, strict=True):
        inside = (places >= low[:, None]) & (places < high[:, None])
        shape = [size if dim in (0, axis % x.dim()) else 1 for dim, size in enumerate(x.shape)]
        filled = torch.where(inside.view(shape), number, filled)
    return filled


@family.kernel_named("SignBitsPack")
def sign_bits_pack(x: T, size: int) -> T:
    """Return a bit an element, 1 where it is not negative, least significant first; what is missing to a byte is -1."""
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
