"""Numbers of eight and four bits that share a scale: by block with a power of two (MX, on an Ascend 950), or a float.

Source of each: golden and page of quant/dynamic_mx_quant, dynamic_block_quant, anti_mx_quant and
matmul/transpose_quant_batch_mat_mul in CANN's ops-nn, commit e5c3fa9327ea.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from pytest_ascend.emulator.kernels.normalization import root_mean_square
from pytest_ascend.emulator.registry import Optional, T
from pytest_ascend.emulator.tensors import FOUR_BITS, POWERS

#: The magnitudes of four bits (E2M1), by code.
_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
#: dtype -> bits of the mantissa, exponent of the largest number, that number, exponent of the smallest normal one.
_ELEMENTS: dict[Any, tuple[int, int, float, int]] = {
    torch.float8_e4m3fn: (3, 8, 448.0, -6),
    torch.float8_e5m2: (2, 15, 57344.0, -14),
    FOUR_BITS: (1, 2, 6.0, 0),
}
SHORT = frozenset(_ELEMENTS)
#: The exponent of a scale is at least and at most this; code 255 is NaN.
_BIAS = 127
_ROUNDED: dict[str, Callable[[T], T]] = {
    "rint": torch.round,
    "round": lambda x: (x.abs() + 0.5).floor() * x.sign(),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
}


def _exponent(x: T) -> T:
    """Return the exponent of each magnitude: 0 for 1, 1 for 2 and 3."""
    return torch.frexp(x).exponent - 1


def to_grid(x: T, dtype: Any, mode: str = "rint") -> T:
    """Round to the nearest number of a format, and saturate; NaN is 0."""
    digits, _, largest, smallest = _ELEMENTS[dtype]
    step = torch.exp2((_exponent(x.abs()).clamp(min=smallest) - digits).double())
    return (_ROUNDED[mode](x / step) * step).clamp(-largest, largest).nan_to_num(0.0)


def _shared_exponents(most: T, dtype: Any, algorithm: int, low: float) -> T:
    """Return the exponent of each block's scale, from its largest magnitude; NaN beyond those of a scale."""
    _, emax, largest, _ = _ELEMENTS[dtype]
    if algorithm == 1 and dtype is not FOUR_BITS:  # the next power of two that keeps the largest in range
        mantissa, exponent = torch.frexp((most.float().clamp(min=low) / largest).double())
        found = (exponent - (mantissa == 0.5).int()).double()  # frexp: 0.5 is a power of two
    else:
        found = _exponent(most).double() - emax
    found = torch.where(most == 0, -float(_BIAS), found).masked_fill(~most.isfinite(), float("nan"))
    return torch.where(found > _BIAS, float("nan"), found.clamp(min=-_BIAS))


def packed(x: T) -> T:
    """Pack numbers of four bits by pairs along the last dimension, the first one lower."""
    codes = torch.searchsorted(_MAGNITUDES.double(), x.abs().contiguous()) | (torch.signbit(x).long() << 3)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def numbers_of(x: T) -> T:
    """Return numbers in float64; of four bits, two for each byte along the dense dimension."""
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
    if most:
        raise NotImplementedError("a largest number of one's own is not implemented")
    if algorithm == 2:
        raise NotImplementedError("scale_alg 2 is not implemented")
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
    if bias is not None or split > 1:
        raise NotImplementedError("a bias and a result that is split are not implemented")
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
    """Quantize blocks of the last two dimensions by their largest magnitudes; what is not finite counts as 0 there."""
    if most:
        raise NotImplementedError("a largest number of one's own is not implemented")
    largest = 127.0 if dtype is torch.int8 else torch.finfo(dtype).max
    rows, columns = x.shape[-2:]
    wide = functional.pad(x.float(), (0, -columns % width, 0, -rows % height))
    blocks = torch.unflatten(torch.unflatten(wide, -1, (-1, width)), -3, (-1, height))
    scale = blocks.abs().masked_fill(~blocks.isfinite(), 0).amax((-3, -1)) / largest
    scale = scale.clamp(max=1 / least) if least else scale
    factors = scale.repeat_interleave(height, -2).repeat_interleave(width, -1)[..., :rows, :columns]
    made = (x.float() / factors).clamp(-largest, largest).nan_to_num(0.0)
    return (_ROUNDED[mode or "rint"](made) if dtype is torch.int8 else made).to(dtype), scale
