"""Normalization together with what comes before or after it, and by the root mean square, as NPUs have it."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.normalization import group_norm, group_norm_backward
from pytest_ascend.emulator.registry import Family, aten

family = Family("fused_normalization")
T = torch.Tensor
Optional = T | None


def root_mean_square(wide: T, gamma: T, eps: float) -> T:
    """Return one over the root mean square of what lies under ``gamma``, with dimensions kept."""
    return wide.square().mean(list(range(wide.dim() - gamma.dim(), wide.dim())), keepdim=True).add(eps).rsqrt()


def _rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    """Return x over its root mean square, rounded once, and one over that root in float32, with dimensions kept."""
    wide = x.float()
    rstd = root_mean_square(wide, gamma, eps)
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
    # torch's inner function reads memory in order, and leaves it to its caller that this is the order of the elements.
    weight, bias = (None if each is None else each.contiguous() for each in (gamma, beta))
    y, mean, rstd = group_norm(x, weight, bias, *sizes, eps)
    return torch.nn.functional.silu(y), mean, rstd


@family.kernel(
    "aclnnAddLayerNormGrad(Tensor dy, Tensor x1, Tensor x2, Tensor rstd, Tensor mean, Tensor gamma, Tensor dsum,"
    " out Tensor dx, out Tensor dgamma, out Tensor dbeta)"
)
def add_layer_norm_grad(dy: T, x1: T, x2: T, rstd: T, mean: T, gamma: T, dsum: Optional) -> tuple[T, T, T]:
    x = x1.float() + x2.float()
    made = aten.native_layer_norm_backward(
        dy.float(), x, gamma.shape, mean, rstd, gamma.float(), gamma.float(), [True] * 3
    )
    dx, dgamma, dbeta = made
    return dx if dsum is None else dx + dsum.float(), dgamma, dbeta


@family.kernel(
    "aclnnDeepNorm(Tensor x, Tensor gx, Tensor beta, Tensor gamma, double alpha, double epsilon, out Tensor mean,"
    " out Tensor rstd, out Tensor y)"
)
def deep_norm(x: T, gx: T, beta: T, gamma: T, alpha: float, eps: float) -> tuple[T, T, T]:
    total = x.float() * alpha + gx.float()
    y, mean, rstd = torch.native_layer_norm(total, gamma.shape, gamma.float(), beta.float(), eps)
    return mean, rstd, y


@family.kernel(
    "aclnnDeepNormGrad(Tensor dy, Tensor x, Tensor gx, Tensor gamma, Tensor mean, Tensor rstd, double alpha,"
    " out Tensor dx, out Tensor dgx, out Tensor dbeta, out Tensor dgamma)"
)
def deep_norm_grad(dy: T, x: T, gx: T, gamma: T, mean: T, rstd: T, alpha: float) -> tuple[T, T, T, T]:
    total = x.float() * alpha + gx.float()
    made = aten.native_layer_norm_backward(
        dy.float(), total, gamma.shape, mean, rstd, gamma.float(), gamma.float(), [True] * 3
    )
    dgx, dgamma, dbeta = made
    return dgx * alpha, dgx, dbeta, dgamma


@family.kernel_named("LayerNormV3")
def layer_norm(x: T, gamma: T, beta: T, *, epsilon: float, **_axes: int) -> tuple[T, T, T]:
    return torch.native_layer_norm(x, gamma.shape, gamma, beta, epsilon)


_GROUPED = "int64 groups, text dataFormat"


@family.kernel(
    f"aclnnGroupNormSwish(Tensor x, Tensor gamma, Tensor beta, {_GROUPED}, double eps, bool activateSwish,"
    " double swishScale, out Tensor y, out Tensor mean, out Tensor rstd)"
)
def group_norm_swish(
    x: T, gamma: T, beta: T, groups: int, _: str | None, eps: float, swish: bool, scale: float
) -> tuple[T, T, T]:
    sizes = (x.shape[0], x.shape[1], x[0, 0].numel(), groups)
    y, mean, rstd = group_norm(x.float(), gamma.float(), beta.float(), *sizes, eps)
    return y * torch.sigmoid(scale * y) if swish else y, mean, rstd


@family.kernel(
    f"aclnnGroupNormSwishGrad(Tensor dy, Tensor mean, Tensor rstd, Tensor x, Tensor gamma, Tensor beta, {_GROUPED},"
    " double swishScale, bool dgammaIsRequired, bool dbetaIsRequired, out Tensor dx, out Tensor dgamma,"
    " out Tensor dbeta)"
)
def group_norm_swish_grad(
    dy: T, mean: T, rstd: T, x: T, gamma: T, beta: T, groups: int, _: str | None, scale: float, of_gamma: bool,
    of_beta: bool,
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    sizes = (x.shape[0], x.shape[1], x[0, 0].numel(), groups)
    by_group = x.float().reshape(x.shape[0], groups, -1)
    mean, rstd = mean.float().view(-1, groups), rstd.float().view(-1, groups)
    normal = ((by_group - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).view(x.shape)
    shape = (1, -1, *[1] * (x.dim() - 2))
    y = normal * gamma.float().view(shape) + beta.float().view(shape)
    share = torch.sigmoid(scale * y)
    grad = dy.float() * (share + scale * y * share * (1 - share))
    mask = [True, of_gamma, of_beta]
    return group_norm_backward(grad, x.float(), mean, rstd, gamma.float(), *sizes, mask)
