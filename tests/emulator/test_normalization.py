"""Normalization gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch import nn

from .both import FLOATS, assert_same, floats, operators

Shapes = tuple[tuple[int, ...], ...]


def _batch_norm(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, *parameters, training=True)


CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "batch norm, 2 dimensions": (_batch_norm, ((8, 3), (3,), (3,))),
    "batch norm, 4 dimensions": (_batch_norm, ((4, 3, 5, 5), (3,), (3,))),
    "batch norm, 5 dimensions": (_batch_norm, ((4, 3, 2, 2, 2), (3,), (3,))),
    "batch norm, no parameters": (_batch_norm, ((4, 3, 5, 5),)),
    "instance norm": (F.instance_norm, ((4, 3, 5, 5),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), ((4, 3, 5), (5,), (5,))),
    "layer norm, two dimensions": (lambda x, w, b: F.layer_norm(x, (3, 5), w, b), ((4, 3, 5), (3, 5), (3, 5))),
    "group norm": (lambda x, w, b: F.group_norm(x, 3, w, b), ((4, 6, 5, 5), (6,), (6,))),
    "group norm, no parameters": (lambda x: F.group_norm(x, 3), ((4, 6, 5),)),
    "rms norm": (lambda x, w: F.rms_norm(x, (5,), w), ((4, 6, 5), (5,))),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_normalization_and_its_gradients(name: str, dtype: torch.dtype) -> None:
    function, shapes = CASES[name]
    inputs = [floats(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    assert_same(function, *inputs, backward=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_norm_module_with_its_running_statistics(training: bool, dtype: torch.dtype) -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        module = nn.BatchNorm2d(3)
        module.running_mean, module.running_var = floats(3, seed=1), floats(3, seed=2).abs()
        module.to(x.device).train(training)
        out = module(x)
        out.float().square().sum().backward()
        assert module.running_mean is not None
        assert module.running_var is not None
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        return [out.detach(), module.running_mean, module.running_var, *gradients]

    assert_same(run, floats(4, 3, 5, 5, dtype=dtype))


def test_batch_norm_with_a_strided_weight_has_the_gradients_of_a_dense_one() -> None:
    """torch's CPU kernel reads such a weight as if it was contiguous."""
    wide = torch.full((16,), float("nan"), device="npu")
    strided, dense = wide[::2], torch.linspace(0.5, 2.0, 8, device="npu")
    strided.copy_(dense)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).npu().requires_grad_()
    found = [
        torch.autograd.grad((F.batch_norm(x, None, None, weight, None, True) ** 3).sum(), x)[0].cpu()
        for weight in (strided, dense)
    ]
    torch.testing.assert_close(*found)


def test_batch_norm_keeps_the_inverse_of_the_deviation() -> None:
    x = floats(4, 3, 5, 5).npu()
    _, mean, invstd = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    expected = (x.cpu().var((0, 2, 3), unbiased=False) + 1e-5).rsqrt()
    torch.testing.assert_close(invstd.cpu(), expected)
    torch.testing.assert_close(mean.cpu(), x.cpu().mean((0, 2, 3)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_layer_norm_of_narrow_data_with_wide_parameters(dtype: torch.dtype) -> None:
    """Gradients of the parameters are sums in float32, where torch's CPU sums in half precision."""
    given = (floats(4, 5, dtype=dtype), floats(5), floats(5))
    on_npu = [each.npu().requires_grad_() for each in given]
    on_cpu = [each.float().requires_grad_() for each in given]
    for x, weight, bias in (on_npu, on_cpu):
        F.layer_norm(x, (5,), weight, bias).float().mul(2.0).sum().backward()
    assert on_npu[0].grad.dtype is dtype
    for actual, expected in zip(on_npu[1:], on_cpu[1:], strict=True):
        assert actual.grad.dtype is torch.float32
        torch.testing.assert_close(actual.grad.cpu(), expected.grad, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_gradients_of_group_norm_with_swish(scale: float) -> None:
    given = (floats(2, 6, 5, 7), floats(6, seed=1), floats(6, seed=2))
    on_npu = [each.npu().requires_grad_() for each in given]
    on_cpu = [each.double().requires_grad_() for each in given]
    called = operators(
        lambda: torch_npu.npu_group_norm_swish(on_npu[0], 3, *on_npu[1:], 1e-5, scale)[0].square().sum().backward()
    )
    assert "aclnnGroupNormSwishGrad" in called
    normal = F.group_norm(on_cpu[0], 3, *on_cpu[1:], 1e-5)
    (normal * torch.sigmoid(scale * normal)).square().sum().backward()
    for actual, expected in zip(on_npu, on_cpu, strict=True):
        torch.testing.assert_close(actual.grad.cpu().double(), expected.grad, rtol=1e-4, atol=1e-4)


def test_a_negative_term_of_group_norm_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"161002(.|\n)*Expected eps to be greater than 0, got -0.5"):
        F.group_norm(floats(2, 6, 3).npu(), 2, eps=-0.5)
