"""NPU's own normalizations agree with their definitions in float64."""

from __future__ import annotations

import pytest
import torch
import torch_npu

from .both import FLOATS, floats

Tensor = torch.Tensor

TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def _defined(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gamma


def _assert_close(actual: Tensor, expected: Tensor) -> None:
    limit = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rms_norm_and_its_gradients(dtype: torch.dtype) -> None:
    x, gamma = floats(4, 3, 8, dtype=dtype), floats(8, dtype=dtype, seed=1)
    actual = [each.npu().requires_grad_() for each in (x, gamma)]
    expected = [each.double().requires_grad_() for each in (x, gamma)]
    y, rstd = torch_npu.npu_rms_norm(*actual, epsilon=1e-6)
    reference = _defined(*expected)
    _assert_close(y.detach(), reference.detach())
    assert rstd.shape == (4, 3, 1)
    y.sum().backward()
    reference.sum().backward()
    for mine, other in zip(actual, expected, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        _assert_close(mine.grad / 4, other.grad / 4)


def test_sum_and_rms_norm() -> None:
    x, other, gamma = floats(4, 8), floats(4, 8, seed=1), floats(8, seed=2)
    y, _, total = torch_npu.npu_add_rms_norm(x.npu(), other.npu(), gamma.npu(), 1e-6)
    _assert_close(y, _defined(x.double() + other.double(), gamma.double()))
    assert torch.equal(total.cpu(), x + other)


def test_sum_and_layer_norm() -> None:
    x, other, gamma, beta = floats(4, 8), floats(4, 8, seed=1), floats(8, seed=2), floats(8, seed=3)
    y, _, _, total = torch_npu.npu_add_layer_norm(x.npu(), other.npu(), gamma.npu(), beta.npu(), 1e-5, True)
    reference = torch.nn.functional.layer_norm((x + other).double(), (8,), gamma.double(), beta.double(), 1e-5)
    _assert_close(y, reference)
    assert torch.equal(total.cpu(), x + other)


def test_group_norm_and_silu() -> None:
    x, gamma, beta = floats(2, 6, 4, 4), floats(6, seed=1), floats(6, seed=2)
    y = torch_npu.npu_group_norm_silu(x.npu(), gamma.npu(), beta.npu(), 3, 1e-5)[0]
    normal = torch.nn.functional.group_norm(x.double(), 3, gamma.double(), beta.double(), 1e-5)
    _assert_close(y, torch.nn.functional.silu(normal))
