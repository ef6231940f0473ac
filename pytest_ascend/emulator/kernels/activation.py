"""Activation functions and their gradients."""

from __future__ import annotations

import math

import torch

from pytest_ascend.emulator.registry import T, aten


def gelu(self: T, *, out: T) -> T:
    """Compute GELU by its tanh formula: the only one of aclnnGelu (CANN, golden of activation/gelu in ops-nn).

    In float16, GELU of +Inf is Inf or NaN in torch's kernels, by processor: Inf is right.
    """
    aten.gelu.out(self, approximate="tanh", out=out)
    return out.masked_fill_(self == torch.inf, torch.inf) if self.dtype == torch.float16 else out


def prelu_backward(grad: T, self: T, weight: T, *, out: tuple[T, T]) -> None:
    """Here weight is a vector, one number per channel; the forward reshapes it to broadcast."""
    by_channel = weight.view([-1 if axis == 1 else 1 for axis in range(self.ndim)])
    grad_input, grad_weight = aten._prelu_kernel_backward(grad, self, by_channel)
    out[0].copy_(grad_input)
    out[1].copy_(grad_weight.sum_to_size(by_channel.shape).view_as(out[1]))


def mish_grad(grad: T, x: T, tanhx: T | None = None) -> T:
    """Differentiate Mish; ``tanhx`` is tanh(softplus(x)). Source: ops-nn e5c3fa9327ea, activation/mish_grad."""
    if tanhx is None:
        return aten.mish_backward(grad, x)  # type: ignore[no-any-return]
    wide, tanhx = x.float(), tanhx.float()
    return (grad.float() * (tanhx + wide * torch.sigmoid(wide) * (1 - tanhx.square()))).to(x.dtype)


def nan_to_num(self: T, nan: float, posinf: float, neginf: float, *, out: T) -> None:
    """Replace; the largest float64, the default replacement of infinity, does not fit CANN's float."""
    is_default = self.dtype == torch.float64
    high, low = (None if is_default and math.isinf(value) else value for value in (posinf, neginf))
    torch.nan_to_num(self, nan, high, low, out=out)
