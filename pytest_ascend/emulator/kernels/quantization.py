"""Quantization: numbers in eight bits, with one scale, one per column, or one per row."""

from __future__ import annotations

import functools

import torch

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.linear import scaled_product, scales_of, whole_of
from pytest_ascend.emulator.kernels.microscaling import mx_product
from pytest_ascend.emulator.registry import Optional, T
from pytest_ascend.emulator.tensors import POWERS, Refused


def rounded(x: T, dtype: torch.dtype) -> T:
    """Round to the nearest integer, half to even, or to the nearest float of eight bits; clamp, and give 0 for NaN.

    Source: golden of quant/quantize in CANN's ops-nn, commit e5c3fa9327ea.
    """
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    whole = x if dtype.is_floating_point else x.round()
    return whole.nan_to_num(nan=0.0).clamp(limits.min, limits.max).to(dtype)


to_int8 = functools.partial(rounded, dtype=torch.int8)


def by_row(x: T) -> tuple[T, T]:
    """Quantize each row by its largest magnitude. Return whole numbers, and the scales."""
    steps = x.abs().amax(-1) / 127
    return (x / steps.unsqueeze(-1)).nan_to_num(0).round().clamp(-128, 127), steps


def _along(x: T, values: T, axis: int) -> T:
    """Return values, one for all or one per index along an axis, in a shape that broadcasts to ``x``."""
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    return values.float().view(shape if values.numel() > 1 else ())


def quantize(x: T, scales: T, zero_points: Optional, dtype: torch.dtype, axis: int) -> T:
    scaled = x.float() / _along(x, scales, axis)
    return rounded(scaled if zero_points is None else scaled + _along(x, zero_points, axis), dtype)


TEXTS = {"torch.qint8": torch.int8, "torch.quint8": torch.uint8, "torch.qint32": torch.int32}
_MODES = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


def ascend_quant(
    x: T, scale: T, offset: Optional, sqrt_mode: bool, round_mode: str, dtype: torch.dtype, axis: int
) -> T:
    factor = _along(x, scale, axis)
    made = x.float() * (factor * factor if sqrt_mode else factor)
    made = made if offset is None else made + _along(x, offset, axis)
    return made if dtype.is_floating_point else rounded(_MODES[round_mode](made), dtype)


#: What shares a scale -> the axes of its largest magnitude.
_TOGETHER: dict[str, list[int]] = {"pertoken": [-1], "perchannel": [-2], "pertensor": []}


def _smoothed(x: T, smooth: Optional, groups: Optional, mode: str) -> T:
    """Multiply by smoothing factors: per column (row, by channel), or per column for groups of rows.

    ``groups`` has the end of each group.
    """
    if smooth is None:
        return x.float()
    factors = smooth.float()
    if groups is not None:
        rows = torch.arange(x.numel() // x.shape[-1])
        group = torch.bucketize(rows, groups.to(rows.dtype), right=True).clamp(max=len(factors) - 1)
        return x.float() * factors[group].view(x.shape)
    return x.float() * (factors.view(-1, 1) if mode == "perchannel" else factors)


def packed_in_words(x: T) -> T:
    """Pack eight numbers of four bits into each int32, the first one lowest."""
    bits = (x.long() & 0xF).view(*x.shape[:-1], -1, 8) << torch.arange(0, 32, 4)
    words = bits.sum(-1)  # 32 bits each, of which the highest is the sign of an int32
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def dynamic_quant(
    x: T, smooth: Optional, groups: Optional = None, _to: torch.dtype | None = None, symmetric: bool = True,
    mode: str | None = None, largest: float = 0, *, out: tuple[T, T, Optional],
) -> None:  # fmt: skip
    """Quantize with scales computed from the numbers, and offsets if requested.

    An output of int32 means eight numbers of four bits.
    """
    y, scale, offset = out
    symmetric, mode = symmetric and offset is None, mode or "pertoken"
    wide, axes = _smoothed(x, smooth, groups, mode), _TOGETHER[mode]
    limits = torch.finfo(y.dtype) if y.dtype.is_floating_point else torch.iinfo(torch.int8)
    low, high = (-8.0, 7.0) if y.dtype is torch.int32 else (float(limits.min), largest or float(limits.max))
    if symmetric:
        found, shift = wide.abs().amax(axes, keepdim=True) / high, torch.zeros(())
    else:
        most = wide.amax(axes, keepdim=True)
        found = (most - wide.amin(axes, keepdim=True)) / (high - low)
        shift = high - torch.where(found == 0, 0, most / found)
    made = (torch.where(found == 0, 0, wide / found) + shift).clamp(low, high)
    made = made if y.dtype.is_floating_point else made.round()
    y.copy_(packed_in_words(made) if y.dtype is torch.int32 else made)
    scale.copy_(found.view(scale.shape))
    if offset is not None:
        offset.copy_(shift.view(offset.shape))


def trans_quant_param(scale: T, offset: Optional) -> T:
    """Pack a scale into 64 bits for the matrix unit: 19 bits of its float32, a mark, nine bits of the offset."""
    whole = scale.float().contiguous().view(torch.int32).long() & 0xFFFFE000 | 1 << 46
    return whole if offset is None else whole | (offset.float().round().clamp(-256, 255).long() & 0x1FF) << 37


def to_19_bits(x: T) -> T:
    """Round float32 to the 19 bits that are kept, half to even."""
    bits = x.float().contiguous().view(torch.int32)
    return (bits + 0xFFF + (bits >> 13 & 1)).view(torch.float32)


def quant_matmul_v5(
    x1: T, x2: T, rows: Optional, columns: T, y_scale: Optional, x1_offset: Optional, x2_offset: Optional,
    y_offset: Optional, bias: Optional, turn1: bool, turn2: bool, group: int, out: T,
) -> None:  # fmt: skip
    """Multiply integers exactly, and scale by row and by column; in int8 with an offset, in int32 without scales.

    A bias in integers is added before the scales, one in floating point after them. With a group, columns have a scale
    for each ``group`` terms (its lowest 16 bits). Scales that are powers of two are of 32 terms (MX).
    """
    if rows is not None and rows.dtype is POWERS:
        if not is_950():
            raise Refused("aclnnQuantMatmulV5 of MX is not supported on this chip.")
        made = mx_product(x1.mT if turn1 else x1, x2.mT if turn2 else x2, rows, columns, turned=turn2)
        out.copy_(made + (0 if bias is None else bias.double()))
        return
    if any(each is not None and each.numel() for each in (y_scale, x1_offset, y_offset)):
        raise NotImplementedError("other offsets than that of x2 are not implemented")
    if group and columns.dim() != 2:
        raise NotImplementedError("groups without scales by group and column are not implemented")
    left, right = (x.mT if turn else x for x, turn in ((whole_of(x1), turn1), (whole_of(x2), turn2)))
    if out.dtype is torch.int32:
        out.copy_(left.double() @ right.double() + (0 if bias is None or bias.is_floating_point() else bias))
        return
    if group:
        terms = left.shape[-1] // columns.shape[0]
        parts = zip(torch.split(left, terms, -1), torch.split(right, terms, -2), columns, strict=False)
        scaled = functools.reduce(torch.add, (scaled_product(a, b, rows, each) for a, b, each in parts))
        scaled = scaled + (0 if bias is None else bias.float())
    else:
        scaled = scaled_product(left, right, rows, columns, bias)
    if out.dtype is torch.int8:
        scaled = rounded(scaled + (0 if x2_offset is None else x2_offset.float()), torch.int8)
    out.copy_(scaled)


def grouped_swiglu_quant(x: T, weight: T, scales: T, rows: T, groups: T, smooth: Optional = None) -> tuple[T, T]:
    """Multiply groups of rows by their weights (groups, k, n), gate, and quantize each row by its largest.

    With five dimensions weights are in the order of the format NZ: (groups, n / 32, k / 16, 16, 32).
    """
    in_order = weight.permute(0, 2, 3, 1, 4) if weight.dim() == 5 else weight
    numbers = in_order.reshape(len(weight), x.shape[-1], -1).contiguous()
    made = torch.zeros(len(x), scales.shape[-1] // 2)
    ends = groups.tolist()
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        # The scales are for columns, or for groups of terms too
        wide = scales_of(scales[group]).view(-1, 1, scales.shape[-1])
        left = torch.unflatten(x[start:end].double(), -1, (len(wide), -1)).transpose(0, 1)
        parts = left @ whole_of(numbers[group]).double().view(len(wide), -1, scales.shape[-1])
        gate, value = (parts.float() * wide).sum(0).chunk(2, -1)
        each = rows[start:end].float().unsqueeze(-1)
        made[start:end] = torch.nn.functional.silu(gate * each) * (value * each)
        if smooth is not None:
            made[start:end] *= smooth[group]
    return by_row(made)


def grouped_swiglu_quant_v2(
    x: T, weight: list[T], scales: list[T], _assist: list[T], _bias: Optional, rows: T, smooth: Optional, groups: T,
    *modes: object,
) -> tuple[T, T]:  # fmt: skip
    """Compute as the first version; groups are ends of rows, or with type 1 their numbers."""
    if len(weight) != 1 or x.dtype is not torch.int8:
        raise NotImplementedError("only rows in int8 and one tensor of weights are implemented")
    ends = groups.cumsum(0) if modes[3] == 1 else groups
    return grouped_swiglu_quant(x, weight[0], scales[0], rows, ends, smooth)
