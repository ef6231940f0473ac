"""Activations that only NPUs have in one operator give what PyTorch makes of their parts in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_npu

from .both import FLOATS, assert_identical, floats


def _geglu(x: torch.Tensor, approximate: str, *, left: bool) -> torch.Tensor:
    gate, value = x.chunk(2, -1) if left else x.chunk(2, -1)[::-1]
    return F.gelu(gate, approximate=approximate) * value


def _clipped_swiglu(gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    gate, value = gate.clamp(max=0.8), value.clamp(-0.8, 0.8)
    return gate * torch.sigmoid(1.5 * gate) * (value + 0.5)


#: The operator, and its parts.
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu": (lambda x: torch_npu.npu_gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "swiglu": (torch_npu.npu_swiglu, lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]),
    "swiglu of rows": (lambda x: torch_npu.npu_swiglu(x, 0), lambda x: F.silu(x.chunk(2)[0]) * x.chunk(2)[1]),
    "geglu": (lambda x: torch_npu.npu_geglu(x)[0], lambda x: _geglu(x, "tanh", left=False)),
    "geglu left": (lambda x: torch_npu.npu_geglu(x, -1, 0, True)[0], lambda x: _geglu(x, "none", left=True)),
}
FORWARD_ONLY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu by erf": (torch_npu.npu_gelu, F.gelu),
    "gelu_mul": (lambda x: torch_npu.npu_gelu_mul(x, approximate="tanh"), lambda x: _geglu(x, "tanh", left=True)),
    "fast_gelu": (torch_npu.npu_fast_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "clipped swiglu": (
        lambda x: torch_npu.npu_clipped_swiglu(x, alpha=1.5, limit=0.8, bias=0.5, interleaved=False),
        lambda x: _clipped_swiglu(*x.chunk(2, -1)),
    ),
    "interleaved swiglu": (
        lambda x: torch_npu.npu_clipped_swiglu(x, alpha=1.5, limit=0.8, bias=0.5, interleaved=True),
        lambda x: _clipped_swiglu(x[..., ::2], x[..., 1::2]),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*PAIRS, *FORWARD_ONLY])
def test_results(name: str, dtype: torch.dtype) -> None:
    operator, parts = {**PAIRS, **FORWARD_ONLY}[name]
    x = floats(4, 6, dtype=dtype)
    assert_identical(operator(x.npu()), parts(x.float()).to(dtype))


@pytest.mark.parametrize("name", PAIRS)
def test_gradients(name: str) -> None:
    operator, parts = PAIRS[name]
    mine, reference = floats(4, 6).npu().requires_grad_(), floats(4, 6).requires_grad_()
    actual, expected = operator(mine), parts(reference)
    weights = floats(*expected.shape, seed=1)
    actual.backward(weights.npu())
    expected.backward(weights)
    assert_identical(mine.grad, reference.grad)


def test_gradient_of_fast_gelu() -> None:
    mine, reference = floats(4, 6).npu().requires_grad_(), floats(4, 6).double().requires_grad_()
    torch_npu.npu_fast_gelu(mine).sum().backward()
    (reference * torch.sigmoid(1.702 * reference)).sum().backward()
    torch.testing.assert_close(mine.grad.cpu().double(), reference.grad, rtol=1e-5, atol=1e-6)
