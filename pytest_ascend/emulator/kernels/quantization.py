"""Quantization: numbers in eight bits, with a scale for all, for each column, or for each row."""

from __future__ import annotations

import functools

import torch

from pytest_ascend.emulator.kernels.normalization import root_mean_square
from pytest_ascend.emulator.registry import Family

family = Family("quantization")
op = family.op
T = torch.Tensor
Optional = T | None


def _rounded(x: T, dtype: torch.dtype) -> T:
    """Round to the nearest integer, to even from the middle, and stay within the dtype."""
    limits = torch.iinfo(dtype)
    return x.round().clamp(limits.min, limits.max).to(dtype)


def _along(x: T, values: T, axis: int) -> T:
    """Return values, one for all or one for each place along an axis, in a shape that fits to ``x``."""
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    return values.float().view(shape if values.numel() > 1 else ())


@family.kernel("aclnnQuantize(Tensor x, Tensor scales, Tensor zeroPoints, dtype dtype, int64 axis, out Tensor out)")
def quantize(x: T, scales: T, zero_points: Optional, dtype: torch.dtype, axis: int) -> T:
    whole = (x.float() / _along(x, scales, axis)).round()
    return _rounded(whole if zero_points is None else whole + _along(x, zero_points, axis), dtype)


_TEXTS = {"torch.qint8": torch.int8, "torch.quint8": torch.uint8, "torch.qint32": torch.int32}


@family.kernel_named("Quantize")
def quantize_by_name(x: T, scales: T, zero_points: Optional = None, *, axis: int, dtype: str) -> T:
    """Return what aclnnQuantize does; older versions of torch_npu call it so."""
    return quantize(x, scales, zero_points, _TEXTS[dtype], axis)


_HOW = "Tensor x, Tensor scale, Tensor offset, bool sqrtMode, text roundMode, dtype dstType"
_MODES = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


@family.kernel(f"aclnnAscendQuantV3({_HOW}, int64 axis, out Tensor y)")
def ascend_quant(
    x: T, scale: T, offset: Optional, sqrt_mode: bool, round_mode: str, dtype: torch.dtype, axis: int
) -> T:
    factor = _along(x, scale, axis)
    made = x.float() * (factor * factor if sqrt_mode else factor)
    made = made if offset is None else made + _along(x, offset, axis)
    return _rounded(_MODES[round_mode](made), dtype)


op(f"aclnnAscendQuant({_HOW}, out Tensor y)", functools.partial(ascend_quant, axis=-1))


@family.kernel(
    "aclnnAscendAntiQuant(Tensor x, Tensor scale, Tensor offset, dtype dstType, bool sqrtMode, out Tensor y)"
)
def anti_quant(x: T, scale: T, offset: Optional, _: torch.dtype, sqrt_mode: bool) -> T:
    wide, factor = x.float(), scale.float()
    wide = wide if offset is None else wide + offset.float()
    return wide * (factor * factor if sqrt_mode else factor)


def _by_rows(x: T, smooth: Optional) -> tuple[T, T]:
    wide = x.float() if smooth is None else x.float() * smooth.float()
    scale = wide.abs().amax(-1) / 127
    return _rounded(wide / scale.unsqueeze(-1), torch.int8), scale


op("aclnnDynamicQuant(Tensor x, Tensor smoothScalesOptional, out Tensor yOut, out Tensor scaleOut)", _by_rows)


@family.kernel(
    "aclnnDynamicQuantV2(Tensor x, Tensor smoothScales, Tensor groupIndex, dtype dstType, out Tensor yOut,"
    " out Tensor scaleOut, out Tensor offsetOut)"
)
def dynamic_quant_v2(x: T, smooth: Optional, groups: Optional, dtype: torch.dtype) -> tuple[T, T, None]:
    if groups is not None or dtype is not torch.int8:
        raise NotImplementedError("quantization by groups and to other dtypes than int8 is not implemented")
    return *_by_rows(x, smooth), None


@family.kernel(
    "aclnnRmsNormQuant(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, double epsilon, out Tensor y)"
)
def rms_norm_quant(x: T, gamma: T, beta: T, scale: T, offset: T, eps: float) -> T:
    normal = x.float() * root_mean_square(x.float(), gamma, eps) * gamma.float() + beta.float()
    return _rounded(normal * scale.float() + offset.float(), torch.int8)
