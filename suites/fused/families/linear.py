"""Matrix products; quantization of values that are clearly not halfway between two integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision.kernel_fallbacks import rms_norm

from ..entry import fused, in_family

T = torch.Tensor

#: Terms in the longest sum.
TERMS = 129


def _linear_inputs(make: InputFactory) -> Iterator[Sample]:
    for rows, terms, columns in ((5, 16, 32), (33, 129, 17)):
        yield call(make.normal(rows, terms), make.normal(columns, terms), make.normal(columns))


def _batched_inputs(make: InputFactory) -> Iterator[Sample]:
    for batch, rows, terms, columns in ((3, 5, 129, 7), (2, 4, 16, 8)):
        yield call(make.normal(batch, rows, terms), make.normal(batch, terms, columns), [])


def _grouped(x: list[T], weight: list[T], group_list: T | None = None, counted: bool = False) -> list[T]:
    if group_list is None:
        return [left @ right for left, right in zip(x, weight, strict=True)]
    ends = [0, *(group_list.cumsum(0) if counted else group_list).tolist()]
    return [torch.cat([x[0][a:b] @ w for a, b, w in zip(ends, ends[1:], weight[0], strict=False)])]


def _grouped_inputs(make: InputFactory) -> Iterator[Sample]:
    sizes = ((3, 16, 8), (5, 129, 17), (1, 32, 32))
    rows = [make.normal(m, k, grad=False) for m, k, _ in sizes]
    yield call(rows, [make.normal(k, n, grad=False) for _, k, n in sizes])
    rows, weights = [make.normal(11, 32, grad=False)], [make.normal(4, 32, 16, grad=False)]
    yield call(rows, weights, group_list=torch.tensor([4, 4, 5, 11]), name="rows of one tensor")
    yield call(rows, weights, group_list=torch.tensor([3, 0, 1, 7]), counted=True, name="rows by their number")


def _call_grouped(multiply: Any, x: list[T], weight: list[T], counted: bool = False, **groups: T) -> Any:
    how = {"split_item": 3, "group_type": 0, "group_list_type": int(counted)} if groups else {"group_type": -1}
    return multiply(x, weight, **groups, **how)


_ACTIVATIONS: Mapping[str, Callable[[T], T]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def _ffn_inputs(make: InputFactory) -> Iterator[Sample]:
    for each in _ACTIVATIONS:
        yield call(make.normal(7, 64), make.normal(64, 96, std=0.1), make.normal(96, 32, std=0.1), each)


def _image_calls(make: InputFactory) -> Iterator[Sample]:
    for into, *how in ((4, [1, 1], [1, 1], [1, 1], 1), (2, [2, 1], [0, 1], [1, 2], 2)):
        yield call(make.normal(2, 4, 9, 11), make.normal(6, into, 3, 3, std=0.3), make.normal(6), *how)


_product: Callable[..., Operator] = partial(fused, grad=False, terms=TERMS)

_LINEAR = in_family(
    "linear",
    fused("npu_linear", F.linear, _linear_inputs, terms=TERMS),
    fused("npu_bmmV2", lambda x, y, _: x @ y, _batched_inputs, terms=TERMS),
    _product("npu_grouped_matmul", _grouped, _grouped_inputs, through=_call_grouped, dtypes=HALVES),
    _product(
        "npu_ffn", lambda x, w1, w2, activation: _ACTIVATIONS[activation](x @ w1) @ w2, _ffn_inputs, dtypes=("float16",)
    ),
    _product("npu_conv2d", F.conv2d, _image_calls),
    _product(
        "npu_transpose_batchmatmul",
        lambda x, weight, perm_x1, perm_y: (x.permute(perm_x1) @ weight).permute(perm_y),
        lambda d: [call(d.normal(8, 3, 128), d.normal(3, 128, 128), perm_x1=[1, 0, 2], perm_y=[1, 0, 2])],
        dtypes=(*HALVES, "float32"),
    ),
)


def _quantize(x: T, scales: T, zero_points: T | None, _: torch.dtype, axis: int, __: bool) -> T:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    scaled = x / scales.view(shape) + (0 if zero_points is None else zero_points.view(shape))
    return scaled.round().clamp(-128, 127).to(torch.int8)  # half to even


def _quantize_inputs(make: InputFactory) -> Iterator[Sample]:
    scales = make.given([1.0, 2.0, 4.0, 0.5, 1.0, 8.0], torch.float32)
    # Whole numbers, plus at most an eighth: none is rounded either way.
    clear = make.integers(5, 6, low=-100, high=101) + make.integers(5, 6, low=-1, high=2) * 0.125
    x = clear.to(make.dtype) * scales.to(make.dtype)
    yield call(x, scales, None, torch.qint8, 1, True, name="signed")
    yield call(x, scales, torch.zeros(6, dtype=torch.int32), torch.qint8, 1, True, name="with zero points")
    # Every code, eighths between codes, the ties, and values out of range: CANN rounds half to even, after it has added
    # the zero point, and saturates (golden of quant/quantize in CANN's ops-nn, commit e5c3fa9327ea).
    codes, odd = (torch.arange(-1072, 1072) / 8).to(make.dtype).view(-1, 8), torch.full((8,), 3, dtype=torch.int32)
    yield call(codes, torch.ones(8), None, torch.qint8, 1, True, name="every code")
    yield call(codes, torch.full((8,), 2.0), odd, torch.qint8, 1, True, name="ties beside a zero point")


def _dynamic(x: T, smooth_scales: T | float = 1.0) -> tuple[T, T]:
    x = x * smooth_scales
    scale = x.abs().amax(-1) / 127
    return (x / scale.unsqueeze(-1)).round().to(torch.int8), scale


def _dynamic_inputs(make: InputFactory) -> Iterator[Sample]:
    for shape in ((5, 64), (2, 3, 32)):
        whole = make.integers(*shape, low=-126, high=127)
        whole[..., 3] = 127  # the scale of each row is a power of two
        rows, smooth = (2.0 ** make.integers(*of, low=-6, high=3) for of in ((*shape[:-1], 1), shape[-1:]))
        yield call((whole * rows).to(make.dtype))
        yield call((whole * rows / smooth).to(make.dtype), smooth_scales=smooth.to(make.dtype), name=f"smooth {shape}")


def _anti_quant(x: T, scale: T, offset: T | None = None, **_: torch.dtype) -> T:
    return (x.to(scale.dtype) + (0 if offset is None else offset)) * scale


def _anti_inputs(make: InputFactory) -> Iterator[Sample]:
    x = make.integers(5, 64, low=-128, high=128, dtype=torch.int8)
    scale = make.uniform(64, low=0.5, high=2, dtype=torch.float32)
    yield call(x, scale, dst_dtype=torch.float16)
    codes = torch.arange(-128, 128, dtype=torch.int8).view(-1, 64)
    yield call(codes, make.given([0.5, 2.0] * 32, torch.float32), dst_dtype=torch.float16, name="every code")
    yield call(x, scale, offset=make.given([3.0] * 64, torch.float32), dst_dtype=torch.float16)


def _rms_norm_quant(x: T, gamma: T, beta: T, scale: T, offset: T) -> T:
    return ((rms_norm(x, gamma)[0] + beta) * scale + offset).round().clamp(-128, 127).to(torch.int8)


def _rms_inputs(make: InputFactory) -> Iterator[Sample]:
    signs = make.integers(4, 32, high=2) * 2 - 1  # of magnitude one: the norm keeps them
    gamma, beta, offset = [float(1 + i % 3) for i in range(32)], [0.0] * 32, torch.tensor([3], dtype=torch.int8)
    yield call(signs.to(make.dtype), make.given(gamma), make.given(beta), make.given([8.0]), offset)


_rounded: Callable[..., Operator] = partial(fused, grad=False, exact=True)

_QUANTIZATION = in_family(
    "quantization",
    _rounded("npu_quantize", _quantize, _quantize_inputs, outputs=("int8",)),
    _rounded("npu_dynamic_quant", _dynamic, _dynamic_inputs, outputs=("int8", "float32"), dtypes=HALVES),
    fused("npu_anti_quant", _anti_quant, _anti_inputs, outputs=("float16",), dtypes=("int8",), grad=False),
    _rounded("npu_rms_norm_quant", _rms_norm_quant, _rms_inputs, outputs=("int8",), dtypes=HALVES),
)

OPERATORS = (*_LINEAR, *_QUANTIZATION)
