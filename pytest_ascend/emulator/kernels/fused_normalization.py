"""Normalization together with what comes before or after it, and by the root mean square, as NPUs have it."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

family = Family("fused_normalization")
aten = torch.ops.aten
T = torch.Tensor
Optional = T | None


def _rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    """Give x over its root mean square, rounded once, and one over that root in float32, with dimensions kept."""
    wide = x.float()
    dimensions = list(range(x.dim() - gamma.dim(), x.dim()))
    rstd = wide.square().mean(dimensions, keepdim=True).add(eps).rsqrt()
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


@family.kernel("aclnnRmsNorm(Tensor x, Tensor gamma, double epsilon, out Tensor y, out Tensor rstd)")
def rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    return _rms_norm(x, gamma, eps)


@family.kernel("aclnnGemmaRmsNorm(Tensor x, Tensor gamma, double epsilon, out Tensor y, out Tensor rstd)")
def gemma_rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    return _rms_norm(x, gamma.float() + 1, eps)


@family.kernel("aclnnRmsNormGrad(Tensor dy, Tensor x, Tensor rstd, Tensor gamma, out Tensor dx, out Tensor dgamma)")
def rms_norm_grad(dy: T, x: T, rstd: T, gamma: T) -> tuple[T, T]:
    dimensions = list(range(x.dim() - gamma.dim(), x.dim()))
    normal = x.float() * rstd
    weighted = dy.float() * gamma.float()
    dx = (weighted - normal * (weighted * normal).mean(dimensions, keepdim=True)) * rstd
    return dx, (dy.float() * normal).sum_to_size(gamma.shape)


@family.kernel(
    "aclnnAddRmsNorm(Tensor x1, Tensor x2, Tensor gamma, double epsilon, out Tensor y, out Tensor rstd, out Tensor x)"
)
def add_rms_norm(x1: T, x2: T, gamma: T, eps: float) -> tuple[T, T, T]:
    x = x1 + x2
    return (*_rms_norm(x, gamma, eps), x)


@family.kernel(
    "aclnnInplaceAddRmsNorm(inout Tensor x1, inout Tensor x2, Tensor gamma, double epsilon, out Tensor rstd)"
)
def inplace_add_rms_norm(x1: T, x2: T, gamma: T, eps: float) -> T:
    """Add into ``x2``, and put what comes of it into ``x1``."""
    x2.add_(x1)
    y, rstd = _rms_norm(x2, gamma, eps)
    x1.copy_(y)
    return rstd


@family.kernel(
    "aclnnAddLayerNorm(Tensor x1, Tensor x2, Tensor gamma, Tensor beta, Tensor bias, double epsilon,"
    " bool additionalOutput, out Tensor y, out Tensor mean, out Tensor rstd, out Tensor x)"
)
def add_layer_norm(x1: T, x2: T, gamma: T, beta: T, bias: Optional, eps: float, keep: bool) -> tuple[T, T, T, Optional]:
    x = x1 + x2 if bias is None else x1 + x2 + bias
    y, mean, rstd = torch.native_layer_norm(x.float(), gamma.shape, gamma.float(), beta.float(), eps)
    return y, mean, rstd, x if keep else None


@family.kernel(
    "aclnnGroupNormSilu(Tensor self, Tensor gamma, Tensor beta, int64 group, double eps, out Tensor out,"
    " out Tensor mean, out Tensor rstd)"
)
def group_norm_silu(x: T, gamma: Optional, beta: Optional, group: int, eps: float) -> tuple[T, T, T]:
    sizes = (x.shape[0], x.shape[1], x[0, 0].numel(), group)
    y, mean, rstd = torch.native_group_norm(x, gamma, beta, *sizes, eps)
    return torch.nn.functional.silu(y), mean, rstd
