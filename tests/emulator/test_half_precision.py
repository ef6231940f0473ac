"""What a chip computes in float32 and rounds once is not rounded inside of the emulated device either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import floats

HALVES = (torch.float16, torch.bfloat16)


def _grid(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def _line(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=7, mode="linear")


def _logits(x: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(x, (torch.arange(200, device=x.device) % 3 == 0).to(x.dtype))


CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "grid_sample": (_grid, (floats(2, 3, 8, 8), floats(2, 5, 5, 2, seed=1).tanh())),
    "linear interpolation": (_line, (floats(2, 3, 50),)),
    "power of a number": (lambda x: x.abs().pow(2.3), (floats(200),)),
    "losses of logits": (_logits, (floats(200),)),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    function, inputs = CASES[name]
    narrow = [each.to(dtype) for each in inputs]
    wide = _outcome(function, [each.float() for each in narrow], dtype)
    for actual, expected in zip(_outcome(function, [each.npu() for each in narrow], dtype), wide, strict=True):
        # One rounding of each of the operators in the composition: a few units of the last place of what was summed.
        limit = 2 * torch.finfo(dtype).eps * expected.abs().clamp_min(expected.abs().max() / 8)
        assert ((actual.float().cpu() - expected.float()).abs() <= limit).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_powers_are_rounded_once(dtype: torch.dtype) -> None:
    x, y = floats(200).abs().to(dtype), floats(200, seed=1).to(dtype)
    assert torch.equal(x.npu().pow(y.npu()).cpu(), x.float().pow(y.float()).to(dtype))


def test_a_layer_norm_of_halves_with_wide_weights_sums_in_float32() -> None:
    x, weight, bias = floats(512, 16, dtype=torch.float16), floats(16, seed=1), floats(16, seed=2)
    on_npu = [each.npu().requires_grad_() for each in (x, weight, bias)]
    on_cpu = [each.float().requires_grad_() for each in (x, weight, bias)]
    F.layer_norm(on_npu[0], (16,), *on_npu[1:]).float().sum().backward()
    F.layer_norm(on_cpu[0], (16,), *on_cpu[1:]).sum().backward()
    torch.testing.assert_close(_gradient(on_npu[1]), _gradient(on_cpu[1]), rtol=1e-3, atol=2e-3)


def _outcome(function: Callable[..., Any], given: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    leaves = [each.detach().requires_grad_() for each in given]
    result = function(*leaves)
    result.backward(torch.ones_like(result))
    return [result.detach().to(dtype), *(_gradient(each).to(dtype) for each in leaves)]


def _gradient(leaf: torch.Tensor) -> torch.Tensor:
    assert leaf.grad is not None
    return leaf.grad.cpu()
