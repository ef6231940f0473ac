"""Quantization. What is rounded lies well off the middle between two integers: no honest device may fall elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import Draw, Sample, call
from pytest_ascend.operators.operator import HALVES

from ..entry import fused, in_family

T = torch.Tensor


def _clear(draw: Draw, *shape: int, high: int = 100) -> T:
    """Return integers from -high to high, off by an eighth or less."""
    whole = draw.integers(*shape, low=-high, high=high + 1)
    return (whole + draw.integers(*shape, low=-1, high=2) * 0.125).to(draw.dtype)


def _quantize(x: T, scales: T, zero_points: T | None, dtype: torch.dtype, axis: int = 1, div_mode: bool = True) -> T:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    scaled = x / scales.view(shape) if div_mode else x * scales.view(shape)
    shifted = scaled.round() if zero_points is None else scaled.round() + zero_points.view(shape)
    low, high = {torch.qint8: (-128, 127), torch.quint8: (0, 255)}[dtype]
    return shifted.clamp(low, high).to(torch.int8 if dtype is torch.qint8 else torch.uint8)


def _quantize_inputs(draw: Draw) -> Iterator[Sample]:
    scales = draw.given([1.0, 2.0, 4.0, 0.5, 1.0, 8.0], torch.float32)
    x = _clear(draw, 5, 6) * scales.to(draw.dtype)
    yield call(x, scales, None, torch.qint8, 1, True, name="signed")
    yield call(x, scales, torch.zeros(6, dtype=torch.int32), torch.qint8, 1, True, name="with zero points")


def _dynamic(x: T, smooth_scales: T | None = None) -> tuple[T, T]:
    x = x if smooth_scales is None else x * smooth_scales
    scale = x.abs().amax(-1) / 127
    return (x / scale.unsqueeze(-1)).round().to(torch.int8), scale


def _dynamic_inputs(draw: Draw) -> Iterator[Sample]:
    for shape in ((5, 64), (2, 3, 32)):
        whole = draw.integers(*shape, low=-126, high=127)
        whole[..., 3] = 127  # the scale of each row is a power of two
        yield call((whole * 2.0 ** draw.integers(*shape[:-1], 1, low=-6, high=3)).to(draw.dtype))


def _anti_quant(x: T, scale: T, offset: T | None = None, dst_dtype: torch.dtype | None = None) -> T:  # noqa: ARG001
    return (x.to(scale.dtype) if offset is None else x.to(scale.dtype) + offset) * scale


def _anti_inputs(draw: Draw) -> Iterator[Sample]:
    x, scale = (
        draw.integers(5, 64, low=-128, high=128, dtype=torch.int8),
        draw.uniform(64, low=0.5, high=2, dtype=torch.float32),
    )
    yield call(x, scale, dst_dtype=torch.float16)
    yield call(x, scale, offset=draw.given([3.0] * 64, torch.float32), dst_dtype=torch.float16)


def _rms_norm_quant(x: T, gamma: T, beta: T, scale: T, offset: T, epsilon: float = 1e-6) -> T:
    normal = x * x.square().mean(-1, keepdim=True).add(epsilon).rsqrt() * gamma + beta
    return (normal * scale + offset).round().clamp(-128, 127).to(torch.int8)


def _rms_inputs(draw: Draw) -> Iterator[Sample]:
    signs = draw.integers(4, 32, high=2) * 2 - 1  # of magnitude one: the norm leaves them as they are
    gamma = draw.given([float(1 + i % 3) for i in range(32)])
    yield call(
        signs.to(draw.dtype), gamma, draw.given([0.0] * 32), draw.given([8.0]), torch.tensor([3], dtype=torch.int8)
    )


def _swiglu_quant_scale(x: T, **_: Any) -> tuple[T, T]:
    left, right = x.chunk(2, -1)
    return _dynamic(left * F.silu(right))


OPERATORS = in_family(
    "quantization",
    fused("npu_quantize", _quantize, _quantize_inputs, outputs=("int8",), grad=False, exact=True),
    fused(
        "npu_dynamic_quant",
        _dynamic,
        _dynamic_inputs,
        outputs=("int8", "float32"),
        dtypes=HALVES,
        grad=False,
        exact=True,
    ),
    fused("npu_anti_quant", _anti_quant, _anti_inputs, outputs=("float16",), dtypes=("int8",), grad=False),
    fused("npu_rms_norm_quant", _rms_norm_quant, _rms_inputs, outputs=("int8",), dtypes=HALVES, grad=False, exact=True),
)
