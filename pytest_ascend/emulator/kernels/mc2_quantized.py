"""Products and collectives in one operator (MC2) on quantized numbers: int8, and float8 if torch has it."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.linear import scaled_product
from pytest_ascend.emulator.kernels.mc2 import Group, matmul_all_reduce
from pytest_ascend.emulator.registry import L, T

#: The scaling of x1, by CANN's numbers: by row, with given scales, or with scales computed from the rows.
_BY_ROW, _FOUND = 3, 7
#: The scaling of x2: by column.
_BY_COLUMN = 2
#: ACL's dtype -> torch's, of the dtypes that rows can be quantized to.
_QUANTIZED = {2: torch.int8, 35: torch.float8_e5m2, 36: torch.float8_e4m3fn}


def _by_column(x: T, scale: T) -> T:
    """Quantize to int8 by columns, rounding half to even."""
    return (x.float() / scale.float()).round().clamp(-128, 127).to(torch.int8)


def _reduced_in_int8(x: T, there: T, back: T, group: str) -> T:
    """Sum over ranks in int8: parts of rows are sent with one scale per column, their sums with another."""
    us, rows = Group(group), x.view(-1, x.shape[-1])
    padded = torch.nn.functional.pad(_by_column(rows, there), (0, 0, 0, -len(rows) % us.ranks))
    share = [len(padded) // us.ranks] * us.ranks
    received = us.exchange(padded, share, share).view(us.ranks, share[0], -1)
    summed = (received.float() * there.float()).sum(0)
    return (us.all_gather(_by_column(summed, back))[: len(rows)].float() * back.float()).to(x.dtype).view_as(x)


def quant_matmul_all_reduce(
    x1: T, x2: T, bias: T | None, x3: T | None, scale: T, group: str, token_scale: T | None = None,
    there: T | None = None, back: T | None = None, group_size: int = 0,
) -> T:  # fmt: skip
    """Multiply quantized numbers, scale, round, and sum over ranks, quantized in transit if there are scales for it."""
    if group_size:
        raise NotImplementedError("scales of blocks are not implemented")
    rows = None if token_scale is None else token_scale.view(x1.shape[:-1])
    made = scaled_product(x1, x2, rows, scale, bias)
    made = made.to(torch.bfloat16 if scale.dtype is torch.bfloat16 else torch.float16)
    made = made if x3 is None else made + x3
    if there is None or back is None:
        return Group(group).all_reduce(made)
    return _reduced_in_int8(made, there, back, group)


def weight_quant_matmul_all_reduce(
    x1: T, x2: T, bias: T | None, scale: T, offset: T | None, x3: T | None, group: str, group_size: int
) -> T:
    """Multiply by int8 weights; the offset is added before scaling.

    There is a scale per column, for all columns, or per ``group_size`` rows of a column.
    """
    if group_size:
        scale = scale.repeat_interleave(group_size, 0)[: len(x2)]
        offset = None if offset is None else offset.repeat_interleave(group_size, 0)[: len(x2)]
    weight = (x2.float() + (0 if offset is None else offset.float())) * scale.float()
    return matmul_all_reduce(x1, weight, bias, group, x3)


def _known(mode1: int, mode2: int, group_size: int, *modes: int) -> None:
    if mode1 not in modes or mode2 != _BY_COLUMN or group_size:
        raise NotImplementedError(f"quantization of x1 by mode {mode1}, of x2 by mode {mode2}: not implemented")


def _found(x: T, to: torch.dtype) -> tuple[T, T]:
    """Quantize each row by its largest magnitude. Return the result, and the scales."""
    largest = torch.iinfo(to).max if to is torch.int8 else torch.finfo(to).max
    scale = x.float().abs().amax(1) / largest
    scale = torch.where(scale == 0, 1.0, scale)
    parts = x.float() / scale.unsqueeze(1)
    return (parts.round() if to is torch.int8 else parts).to(to), scale


def all_to_all_quant_matmul(
    x1: T, x2: T, bias: T | None, scale1: T | None, scale2: T, group: str, axes: L | None, mode1: int, mode2: int,
    to: int, group_size: int, turned2: bool,
) -> tuple[T, T]:  # fmt: skip
    """Send each rank its part of the rows, put the received parts side by side, quantize rows, and multiply."""
    del axes  # there is one way
    _known(mode1, mode2, group_size, _BY_ROW, _FOUND)
    received = Group(group).rows_to_columns(x1)
    a, scale = (received, scale1) if mode1 == _BY_ROW else _found(received, _QUANTIZED[to])
    return scaled_product(a, x2.T if turned2 else x2, scale, scale2, bias), received


def quant_matmul_all_to_all(
    x1: T, x2: T, bias: T | None, scale1: T, scale2: T, axes: L | None, group: str, mode1: int, mode2: int,
    group_size: int, turned2: bool,
) -> T:  # fmt: skip
    """Multiply and scale, send each rank its part of the columns, and put the received parts below one another."""
    del axes  # there is one way
    _known(mode1, mode2, group_size, _BY_ROW)
    return Group(group).columns_to_rows(scaled_product(x1, x2.T if turned2 else x2, scale1, scale2, bias))
