"""Quantization to eight and four bits, with a scale per tensor, column, row or block: a float, or for a block a power
of two (MX, on an Ascend 950).

Source of operators with blocks: golden and page of quant/dynamic_mx_quant, dynamic_block_quant, anti_mx_quant and
matmul/transpose_quant_batch_mat_mul in CANN's ops-nn, commit e5c3fa9327ea.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.linear import scaled_product, scales_of, whole_of
from pytest_ascend.emulator.kernels.normalization import root_mean_square
from pytest_ascend.emulator.registry import Optional, T, gap, refuse
from pytest_ascend.emulator.tensors import FOUR_BITS, POWERS


def rounded(x: T, dtype: torch.dtype) -> T:
    """Round to the nearest integer, half to even, or to the nearest eight-bit float; clamp, and return 0 for NaN.

    Source: golden of quant/quantize in CANN's ops-nn, commit e5c3fa9327ea.
    """
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    whole = x if dtype.is_floating_point else x.round()
    return whole.nan_to_num(nan=0.0).clamp(limits.min, limits.max).to(dtype)


to_int8 = functools.partial(rounded, dtype=torch.int8)


def by_row(x: T, dtype: torch.dtype = torch.int8) -> tuple[T, T]:
    """Quantize each row by its largest magnitude. Return integers, or eight-bit floats, and the scales."""
    largest = torch.finfo(dtype).max if dtype.is_floating_point else 127
    steps = x.float().abs().amax(-1) / largest
    parts = (x.float() / steps.unsqueeze(-1)).nan_to_num(0)
    return parts.to(dtype) if dtype.is_floating_point else parts.round().clamp(-128, 127), steps


def _along(x: T, values: T, axis: int) -> T:
    """Return values, one for all or one per index along an axis, in a shape that broadcasts to ``x``."""
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    return values.float().view(shape if values.numel() > 1 else ())


TEXTS = {"torch.qint8": torch.int8, "torch.quint8": torch.uint8, "torch.qint32": torch.int32}
_MODES = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


#: Granularity of the scales -> the axes of the largest magnitude.
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
    """Pack eight four-bit numbers into each int32, the first one lowest."""
    bits = (x.long() & 0xF).view(*x.shape[:-1], -1, 8) << torch.arange(0, 32, 4)
    words = bits.sum(-1)  # 32 bits each, the highest being the sign of an int32
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def dynamic_quant(
    x: T, smooth: Optional, groups: Optional = None, _to: torch.dtype | None = None, symmetric: bool = True,
    mode: str | None = None, largest: float = 0, *, out: tuple[T, T, Optional],
) -> None:  # fmt: skip
    """Quantize with scales computed from the numbers, and offsets if requested.

    An output of int32 means eight four-bit numbers.
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


def quant_matmul_v5(
    x1: T, x2: T, rows: Optional, columns: T, y_scale: Optional, x1_offset: Optional, x2_offset: Optional,
    y_offset: Optional, bias: Optional, turn1: bool, turn2: bool, group: int, out: T,
) -> None:  # fmt: skip
    """Multiply integers exactly, and scale by row and by column; in int8 with an offset, in int32 without scales.

    An integer bias is added before the scales, a floating-point bias after them. With a group, columns have a scale for
    each ``group`` terms (its lowest 16 bits). Scales that are powers of two cover 32 terms (MX).
    """
    if rows is not None and rows.dtype is POWERS:
        refuse(not is_950(), "aclnnQuantMatmulV5 of MX is not supported on this chip.")
        made = mx_product(x1.mT if turn1 else x1, x2.mT if turn2 else x2, rows, columns, turned=turn2)
        out.copy_(made + (0 if bias is None else bias.double()))
        return
    if any(each is not None and each.numel() for each in (y_scale, x1_offset, y_offset)):
        raise NotImplementedError("other offsets than that of x2 are not implemented")
    gap(group and columns.dim() != 2, "groups without scales by group and column are not implemented")
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
    """Multiply groups of rows by their weights (groups, k, n), gate, and quantize each row by its largest magnitude.

    Weights with five dimensions are in the NZ format: (groups, n / 32, k / 16, 16, 32).
    """
    in_order = weight.permute(0, 2, 3, 1, 4) if weight.dim() == 5 else weight
    numbers = in_order.reshape(len(weight), x.shape[-1], -1).contiguous()
    made = torch.zeros(len(x), scales.shape[-1] // 2)
    ends = groups.tolist()
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        # The scales are per column, or also per group of terms.
        wide = scales_of(scales[group]).view(-1, 1, scales.shape[-1])
        left = torch.unflatten(x[start:end].double(), -1, (len(wide), -1)).transpose(0, 1)
        parts = left @ whole_of(numbers[group]).double().view(len(wide), -1, scales.shape[-1])
        gate, value = (parts.float() * wide).sum(0).chunk(2, -1)
        each = rows[start:end].float().unsqueeze(-1)
        made[start:end] = torch.nn.functional.silu(gate * each) * (value * each)
        if smooth is not None:
            made[start:end] *= smooth[group]
    return by_row(made)


#: The magnitudes of four-bit floats (E2M1), by code.
_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
#: dtype -> bits of the mantissa, exponent of the largest number, that number, exponent of the smallest normal one.
_ELEMENTS: dict[Any, tuple[int, int, float, int]] = {
    torch.float8_e4m3fn: (3, 8, 448.0, -6),
    torch.float8_e5m2: (2, 15, 57344.0, -14),
    FOUR_BITS: (1, 2, 6.0, 0),
}
SHORT = frozenset(_ELEMENTS)
#: The exponent of a scale is limited to this magnitude; code 255 is NaN.
_BIAS = 127
_ROUNDED: dict[str, Callable[[T], T]] = {
    "rint": torch.round,
    "round": lambda x: (x.abs() + 0.5).floor() * x.sign(),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
}


def to_grid(x: T, dtype: Any, mode: str = "rint") -> T:
    """Round to the nearest number of a format, and saturate; NaN becomes 0."""
    digits, _, largest, smallest = _ELEMENTS[dtype]
    step = torch.exp2(((torch.frexp(x).exponent - 1).clamp(min=smallest) - digits).double())
    return (_ROUNDED[mode](x / step) * step).clamp(-largest, largest).nan_to_num(0.0)


def _shared_exponents(most: T, dtype: Any, algorithm: int, low: float) -> T:
    """Return the exponent of each block's scale, from its largest magnitude; NaN out of a scale's range."""
    _, emax, largest, _ = _ELEMENTS[dtype]
    if algorithm == 1 and dtype is not FOUR_BITS:  # the next power of two that keeps the largest in range
        mantissa, exponent = torch.frexp((most.float().clamp(min=low) / largest).double())
        found = (exponent - (mantissa == 0.5).int()).double()  # frexp: 0.5 is a power of two
    else:
        found = (torch.frexp(most).exponent - 1).double() - emax
    found = torch.where(most == 0, -float(_BIAS), found).masked_fill(~most.isfinite(), float("nan"))
    return torch.where(found > _BIAS, float("nan"), found.clamp(min=-_BIAS))


def packed(x: T) -> T:
    """Pack pairs of four-bit numbers along the last dimension, the first one lower."""
    codes = torch.searchsorted(_MAGNITUDES.double(), x.abs().contiguous()) | (torch.signbit(x).long() << 3)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def numbers_of(x: T) -> T:
    """Return numbers in float64; four-bit ones are unpacked, two for each byte along the dense dimension."""
    if x.dtype is not FOUR_BITS:
        return x.double()
    dense = x.dim() - 1 if x.stride(-1) == 1 else x.dim() - 2
    codes = x.view(torch.uint8).movedim(dense, -1).contiguous()
    pairs = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()
    return (_MAGNITUDES.double()[pairs & 7] * (1 - 2 * (pairs >> 3))).movedim(-1, dense)


def dynamic_mx_quant(
    x: T, axis: int, mode: str, dtype: torch.dtype, size: int, algorithm: int, most: float = 0, low: float = 0, *,
    out: tuple[T, T],
) -> None:  # fmt: skip
    """Quantize blocks along an axis. Their scales are in pairs (last dimension); a missing one has code 0."""
    gap(most, "a largest number of one's own is not implemented")
    gap(algorithm == 2, "scale_alg 2 is not implemented")
    y, scale = out
    moved = x.double().movedim(axis, -1)
    count = -(-moved.shape[-1] // size)
    blocks = torch.unflatten(functional.pad(moved, (0, count * size - moved.shape[-1])), -1, (count, size))
    exponents = _shared_exponents(blocks.abs().amax(-1), dtype, algorithm, low)
    made = to_grid(blocks / torch.exp2(exponents).unsqueeze(-1), dtype, mode or "rint").flatten(-2)
    made = made[..., : moved.shape[-1]].movedim(-1, axis)
    y.copy_(made.to(y.dtype)) if dtype is not FOUR_BITS else y.view(torch.uint8).copy_(packed(made))
    codes = torch.where(exponents.isnan(), 255, exponents + _BIAS).to(torch.uint8)
    pairs = torch.unflatten(functional.pad(codes, (0, count % 2)), -1, (-1, 2))
    scale.view(torch.uint8).copy_(pairs.movedim(-2, axis if axis >= 0 else x.dim() + axis))


def _of_blocks(scale: T, axis: int, rows: int) -> T:
    """Return a factor for each number along an axis, from scales in pairs (last dimension).

    They are in E8M0: two to the power of the code less 127; 255 is NaN.
    """
    codes = scale.view(torch.uint8).double()
    powers = torch.where(codes == 255, float("nan"), torch.exp2(codes - _BIAS))
    return powers.movedim(axis, -2).flatten(-2).repeat_interleave(32, -1)[..., :rows].movedim(-1, axis)


def add_rms_norm_dynamic_mx_quant(
    x1: T, x2: T, gamma: T, beta: Optional, epsilon: float, algorithm: int, mode: str, dtype: torch.dtype, _: bool, *,
    out: tuple[T, T, T, Optional],
) -> None:  # fmt: skip
    total = x1.float() + x2.float()
    factor = root_mean_square(total, gamma, epsilon)
    normal = total * factor * gamma.float() + (0 if beta is None else beta.float())
    out[1].copy_(total)
    dynamic_mx_quant(normal.to(x1.dtype), -1, mode, dtype, 32, algorithm, out=(out[0], out[2]))
    if out[3] is not None and out[3].numel():
        out[3].copy_(factor.view(out[3].shape))


def mx_product(left: T, right: T, rows: T, columns: T, *, turned: bool = False) -> T:
    """Multiply (..., m, k) by (..., k, n) with scales (..., m, k / 64, 2), and (..., k / 64, n, 2) or as ``turned``."""
    a, b = numbers_of(left), numbers_of(right)
    terms = a.shape[-1]
    factors = _of_blocks(columns, columns.dim() - (2 if turned else 3), terms)
    return (a * _of_blocks(rows, rows.dim() - 2, terms)) @ (b * (factors.mT if turned else factors))


def transpose_quant_batch_mat_mul(
    x1: T, x2: T, bias: Optional, rows: T, columns: T, _dtype: torch.dtype, _size: int, perm1: list[int],
    perm2: list[int], perm: list[int], split: int,
) -> T:  # fmt: skip
    """Multiply batches (m, batch, k) by (batch, k, n): scales by row and column, or by 32 terms with powers of two."""
    gap(bias is not None or split > 1, "a bias and a result that is split are not implemented")
    left, right = x1.permute(perm1), x2.permute(perm2)
    if rows.dtype is POWERS:
        turned = perm2 == [0, 2, 1]
        made = mx_product(left, right, rows.transpose(0, 1), columns, turned=turned)
    else:
        made = (left.double() @ right.double()).float() * columns.float() * rows.float().view(1, -1, 1)
    return made.permute(perm)


def dynamic_block_quant(
    x: T, least: float, mode: str, dtype: torch.dtype, height: int, width: int, most: float = 0
) -> tuple[T, T]:
    """Quantize blocks of the last two dimensions by their largest magnitudes, where non-finite numbers count as 0."""
    gap(most, "a largest number of one's own is not implemented")
    largest = 127.0 if dtype is torch.int8 else torch.finfo(dtype).max
    rows, columns = x.shape[-2:]
    wide = functional.pad(x.float(), (0, -columns % width, 0, -rows % height))
    blocks = torch.unflatten(torch.unflatten(wide, -1, (-1, width)), -3, (-1, height))
    scale = blocks.abs().masked_fill(~blocks.isfinite(), 0).amax((-3, -1)) / largest
    scale = scale.clamp(max=1 / least) if least else scale
    factors = scale.repeat_interleave(height, -2).repeat_interleave(width, -1)[..., :rows, :columns]
    made = (x.float() / factors).clamp(-largest, largest).nan_to_num(0.0)
    return (_ROUNDED[mode or "rint"](made) if dtype is torch.int8 else made).to(dtype), scale
