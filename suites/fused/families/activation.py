"""Activations, gated ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import Draw, Sample, call

from ..entry import fused, in_family


def elementwise(*arguments: dict[str, Any]) -> Callable[[Draw], Iterator[Sample]]:
    """Calls of sizes around vector lengths, and one for each set of further arguments."""

    def inputs(draw: Draw) -> Iterator[Sample]:
        for shape in ((2, 3, 5, 7), (1, 257), (1025,), (16,), (15,)):
            yield call(draw.uniform(*shape, low=-6, high=6))
        yield call(draw.given([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 8.0, -8.0, 20.0, -20.0]), name="chosen")
        for named in arguments:
            yield call(draw.uniform(3, 85, low=-6, high=6), **named)

    return inputs


def gated(*arguments: dict[str, Any], first: dict[str, Any] | None = None) -> Callable[[Draw], Iterator[Sample]]:
    """Calls of which a dimension is halved, and one for each set of further arguments."""

    def inputs(draw: Draw) -> Iterator[Sample]:
        for shape in ((2, 3, 5, 32), (4, 514), (3, 2)):
            yield call(draw.uniform(*shape, low=-5, high=5), **(first or {}))
        for named in arguments:
            yield call(draw.uniform(6, 4, 64, low=-5, high=5), **named)

    return inputs


def _fast_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    gate, value = x.chunk(2, dim)
    return F.silu(gate) * value


def _geglu(
    x: torch.Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> tuple[torch.Tensor, ...]:
    gate, value = x.chunk(2, dim)[:: 1 if activate_left else -1]
    gelu = F.gelu(gate, approximate="tanh" if approximate else "none")
    return gelu * value, gelu


def _gelu_mul(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    gate, value = x.chunk(2, -1)
    return F.gelu(gate, approximate=approximate) * value


def _clipped_swiglu(
    x: torch.Tensor, alpha: float = 1.702, limit: float = 7.0, bias: float = 1.0, interleaved: bool = True
) -> torch.Tensor:
    gate, value = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (value + bias)


OPERATORS = in_family(
    "activation",
    fused("npu_fast_gelu", _fast_gelu, elementwise()),
    fused("npu_gelu", F.gelu, elementwise({"approximate": "tanh"}, {"approximate": "none"})),
    fused("npu_silu", F.silu, elementwise()),
    fused("npu_mish", F.mish, elementwise()),
    fused("npu_swiglu", _swiglu, gated({"dim": 0}, {"dim": 1}, {"dim": -2})),
    fused("npu_geglu", _geglu, gated({"approximate": 0}, {"activate_left": True}, {"dim": 0}), outputs=("", "")),
    fused("npu_gelu_mul", _gelu_mul, gated({"approximate": "tanh"}), grad=False),
    fused(
        "npu_clipped_swiglu",
        _clipped_swiglu,
        gated({"interleaved": False}, {"alpha": 1.5, "limit": 0.8, "bias": 0.5}),
        grad=False,
    ),
)
