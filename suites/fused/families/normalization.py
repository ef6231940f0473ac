"""Activations, including gated ones; normalization, with adjacent operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import Inputs
from pytest_ascend.precision.kernel_fallbacks import geglu, rms_norm, swiglu

from ..entry import fused, in_family

T = torch.Tensor

#: The longest row.
TERMS = 1032


def rows(tensors: int, *weights: str, epsilon: float = 0.0, **named: Any) -> Inputs:
    """Yield tensors of one shape, and weights ("scale" around 1, "shift" around 0) of the last dimension.

    An ``epsilon`` other than the operator's default is used for the smallest of them.
    """
    low = {"scale": 0.5, "shift": -0.5}
    return lambda make: (
        call(
            *(make.normal(*shape) for _ in range(tensors)),
            *(make.uniform(shape[-1], low=low[each], high=low[each] + 1) for each in weights),
            **named | ({"epsilon": epsilon} if epsilon and shape == (17, 16) else {}),
        )
        for shape in ((2, 3, 64), (5, 1032), (17, 16))
    )


def _gemma_rms_norm(x: T, gamma: T, epsilon: float = 1e-6) -> tuple[T, T]:
    return rms_norm(x, 1 + gamma, epsilon)


def add_rms_norm(x1: T, x2: T, gamma: T, epsilon: float = 1e-6) -> tuple[T, T, T]:
    x = x1 + x2
    return (*rms_norm(x, gamma, epsilon), x)


def _add_layer_norm(x1: T, x2: T, gamma: T, beta: T, epsilon: float = 1e-5, additional_output: bool = False) -> Any:
    x = x1 + x2
    rstd = x.var(-1, correction=0, keepdim=True).add(epsilon).rsqrt()
    normal = F.layer_norm(x, gamma.shape, gamma, beta, epsilon)
    return normal, x.mean(-1, keepdim=True), rstd, *([x] if additional_output else [])


def _deep_norm(x: T, gx: T, beta: T, gamma: T, alpha: float = 0.3, epsilon: float = 1e-6) -> T:
    total = alpha * x + gx
    total = total - total.mean(-1, keepdim=True)
    return gamma * total * total.square().mean(-1, keepdim=True).add(epsilon).rsqrt() + beta


def _group_norm_swish(x: T, num_groups: int, weight: T, bias: T, eps: float = 1e-5, swish_scale: float = 1.0) -> T:
    normal = F.group_norm(x, num_groups, weight, bias, eps)
    return normal * torch.sigmoid(swish_scale * normal)


def _images(make: InputFactory) -> tuple[T, T, T]:
    return make.normal(2, 6, 5, 7), make.uniform(6, low=0.5, high=1.5), make.uniform(6)


def _swish_inputs(make: InputFactory) -> Iterator[Sample]:
    settings: tuple[dict[str, Any], ...] = ({}, {"swish_scale": 1.5, "eps": 1e-3})
    for how in settings:
        x, weight, bias = _images(make)
        yield call(x, 3, weight, bias, **how)


_normal: Callable[..., Operator] = partial(fused, terms=TERMS)
_forward: Callable[..., Operator] = partial(_normal, grad=False)
_ROOT = ("", "float32")

_NORMALIZATION = in_family(
    "normalization",
    _normal("npu_rms_norm", rms_norm, rows(1, "scale", epsilon=0.25), outputs=_ROOT),
    _forward("npu_gemma_rms_norm", _gemma_rms_norm, rows(1, "shift", epsilon=0.25), outputs=_ROOT),
    _forward("npu_add_rms_norm", add_rms_norm, rows(2, "scale", epsilon=0.25), outputs=(*_ROOT, "")),
    _normal(
        "npu_add_layer_norm",
        _add_layer_norm,
        rows(2, "scale", "shift", epsilon=0.25, additional_output=True),
        outputs=("", "float32", "float32", ""),
        nonfinite=False,
    ),  # statistics of such a row are unspecified
    _normal(
        "npu_deep_norm",
        _deep_norm,
        rows(2, "shift", "scale", epsilon=0.25, alpha=0.7),
        through=lambda deep_norm, *args, **named: deep_norm(*args, **named)[2],
    ),
    _normal(
        "npu_layer_norm_eval",
        F.layer_norm,
        lambda d: [
            call(d.normal(3, 5, 64, grad=False), [64], d.normal(64, grad=False), d.normal(64, grad=False)),
            call(d.normal(4, 6, 16, grad=False), [6, 16], d.normal(6, 16, grad=False), d.normal(6, 16, grad=False)),
        ],
        grad=False,
    ),
    _normal(
        "npu_group_norm_silu",
        lambda x, weight, bias, group, eps=1e-5: F.silu(F.group_norm(x, group, weight, bias, eps)),
        lambda d: [call(*_images(d), 3), call(*_images(d), 2, 1e-3)],
        outputs=("",),
        grad=False,
    ),
    _normal("npu_group_norm_swish", _group_norm_swish, _swish_inputs, outputs=("",)),
)


def elementwise(*arguments: dict[str, Any]) -> Inputs:
    return lambda make: [
        *(call(make.uniform(*shape, low=-6, high=6)) for shape in ((2, 3, 5, 7), (1, 257), (1025,), (16,), (15,))),
        call(make.given([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 8.0, -8.0, 20.0, -20.0]), name="chosen"),
        *(call(make.uniform(3, 85, low=-6, high=6), **named) for named in arguments),
    ]


def gated(*arguments: dict[str, Any]) -> Inputs:
    return lambda make: [
        *(call(make.uniform(*shape, low=-5, high=5)) for shape in ((2, 3, 5, 32), (4, 514), (3, 2))),
        *(call(make.uniform(6, 4, 64, low=-5, high=5), **named) for named in arguments),
    ]


def _gelu_mul(x: T, approximate: str = "none") -> T:
    gate, value = x.chunk(2, -1)
    return F.gelu(gate, approximate=approximate) * value


def _clipped_swiglu(x: T, alpha: float = 1.702, limit: float = 7.0, bias: float = 1.0, interleaved: bool = True) -> T:
    gate, value = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (value + bias)


_ACTIVATION = in_family(
    "activation",
    fused("npu_fast_gelu", lambda x: x * torch.sigmoid(1.702 * x), elementwise()),
    fused("npu_gelu", F.gelu, elementwise({"approximate": "tanh"}, {"approximate": "none"})),
    fused("npu_silu", F.silu, elementwise()),
    fused("npu_mish", F.mish, elementwise()),
    fused("npu_swiglu", swiglu, gated({"dim": 0}, {"dim": 1}, {"dim": -2})),
    fused("npu_geglu", geglu, gated({"approximate": 0}, {"activate_left": True}, {"dim": 0}), outputs=("", "")),
    fused("npu_gelu_mul", _gelu_mul, gated({"approximate": "tanh"}), grad=False),
    fused(
        "npu_clipped_swiglu",
        _clipped_swiglu,
        gated({"interleaved": False}, {"alpha": 1.5, "limit": 0.8, "bias": 0.5}),
        grad=False,
    ),
)

OPERATORS = (*_NORMALIZATION, *_ACTIVATION)
