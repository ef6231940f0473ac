"""Normalization: over the batch, over a layer, over groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pytest_ascend.emulator.registry import Optional, T, aten


def _in_dtype_of(weight: Optional, *statistics: Optional) -> tuple[Optional, ...]:
    """Return statistics, which torch_npu keeps in float32, in the dtype of the parameters, as the CPU needs them."""
    return tuple(each if each is None or weight is None else each.to(weight.dtype) for each in statistics)


def layer_norm(x: T, shape: list[int], weight: Optional, bias: Optional, eps: float) -> tuple[T, Optional, Optional]:
    out, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
    return (out, mean, rstd) if mean.numel() else (out, None, None)  # their shape depends on torch_npu's version


# torch's CPU kernels ignore the strides of the parameters of groups.


def _dense(*given: Any) -> Iterator[Any]:
    return (each.contiguous() if isinstance(each, T) else each for each in given)


# --- over a batch shared by several devices: statistics of each, combined, and the same for gradients ---


def _of_channels(x: T, values: T) -> T:
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _but_channels(x: T) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def batch_norm_stats(x: T, eps: float) -> tuple[T, T]:
    spread, mean = torch.var_mean(x.float(), _but_channels(x), correction=0)
    return mean, (spread + eps).rsqrt()


def _moved(
    mean: T, spread: T, total: T, running_mean: Optional, running_var: Optional, momentum: float, eps: float
) -> tuple[T, T]:
    """Move running statistics towards those of a batch; return the mean, and the factor that normalizes."""
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((spread * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (spread + eps).rsqrt()


def batch_norm_gather_stats(
    _: T, means: T, invstds: T, running_mean: Optional, running_var: Optional, momentum: float, eps: float, counts: T
) -> tuple[T, T]:
    weights = counts.float().unsqueeze(1)
    total = weights.sum()
    mean = (means * weights).sum(0) / total
    spread = ((invstds.square().reciprocal() - eps + (means - mean).square()) * weights).sum(0) / total
    return _moved(mean, spread, total, running_mean, running_var, momentum, eps)


def batch_norm_reduce(x: T) -> tuple[T, T]:
    x = x.float()
    return x.sum(_but_channels(x)), x.square().sum(_but_channels(x))


def batch_norm_gather_sums(
    sums: T, squares: T, counts: T, running_mean: T, running_var: T, momentum: float, eps: float
) -> tuple[T, T]:
    """Return statistics of all ranks from sums: older torch_npu has its own SyncBatchNorm."""
    total = counts.sum()
    mean = sums.sum(0) / total
    return _moved(mean, squares.sum(0) / total - mean.square(), total, running_mean, running_var, momentum, eps)


def batch_norm_gather_sums_by_name(
    sums: T, squares: T, counts: T, *running: T, momentum: float = 0.1, eps: float = 1e-5
) -> tuple[T, ...]:
    """Return the running statistics too, instead of moving them in place."""
    mean, var = (each.clone() for each in running)
    return *batch_norm_gather_sums(sums, squares, counts, mean, var, momentum, eps), mean, var


def batch_norm_reduce_backward(
    grad: T, x: T, mean: T, invstd: T, _: Optional, of_input: bool, of_weight: bool, of_bias: bool
) -> tuple[Optional, ...]:
    sums = grad.float().sum(_but_channels(x))
    products = (grad.float() * (x.float() - _of_channels(x, mean))).sum(_but_channels(x))
    made = ((sums, of_input), (products, of_input), (products * invstd, of_weight), (sums, of_bias))
    return tuple(each if is_asked else None for each, is_asked in made)


def batch_norm_elemt(x: T, weight: Optional, bias: Optional, mean: T, invstd: T, _: float) -> T:
    scale = invstd if weight is None else invstd * weight
    normal = (x.float() - _of_channels(x, mean)) * _of_channels(x, scale)
    return (normal if bias is None else normal + _of_channels(x, bias)).to(x.dtype)


def batch_norm_elemt_backward(
    grad: T, x: T, mean: T, invstd: T, weight: Optional, sums: T, products: T, counts: T
) -> T:
    total = counts.sum()
    scale = invstd if weight is None else invstd * weight
    slope = _of_channels(x, invstd.square() * products / total)
    centred = grad.float() - _of_channels(x, sums / total) - (x.float() - _of_channels(x, mean)) * slope
    return (centred * _of_channels(x, scale)).to(x.dtype)


def root_mean_square(wide: T, gamma: T, eps: float) -> T:
    """Return the reciprocal of the root mean square over the dimensions of ``gamma``, with dimensions kept."""
    return wide.square().mean(list(range(wide.dim() - gamma.dim(), wide.dim())), keepdim=True).add(eps).rsqrt()


def rms_normal(x: T, gamma: T, eps: float, beta: Optional = None) -> T:
    """Return x over its root mean square, times gamma, plus beta, in float32."""
    normal = x.float() * root_mean_square(x.float(), gamma, eps) * gamma.float()
    return normal if beta is None else normal + beta.float()


def rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    """Return x over its root mean square, rounded once, and the reciprocal of that root in float32, dimensions kept."""
    wide = x.float()
    rstd = root_mean_square(wide, gamma, eps)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def rms_norm_grad(dy: T, x: T, rstd: T, gamma: T) -> tuple[T, T]:
    dimensions = list(range(x.dim() - gamma.dim(), x.dim()))
    normal = x.float() * rstd
    weighted = dy.float() * gamma.float()
    dx = (weighted - normal * (weighted * normal).mean(dimensions, keepdim=True)) * rstd
    return dx, (dy.float() * normal).sum_to_size(gamma.shape)


def add_rms_norm(x1: T, x2: T, gamma: T, eps: float) -> tuple[T, T, T]:
    x = x1 + x2
    return (*rms_norm(x, gamma, eps), x)


def inplace_add_rms_norm(x1: T, x2: T, gamma: T, eps: float) -> T:
    """Add into ``x2``, and write the normalized result to ``x1``."""
    x2.add_(x1)
    y, rstd = rms_norm(x2, gamma, eps)
    x1.copy_(y)
    return rstd


def add_layer_norm(x1: T, x2: T, gamma: T, beta: T, bias: Optional, eps: float, keep: bool) -> tuple[T, T, T, Optional]:
    x = x1 + x2 if bias is None else x1 + x2 + bias
    y, mean, rstd = torch.native_layer_norm(x.float(), gamma.shape, gamma.float(), beta.float(), eps)
    return y, mean, rstd, x if keep else None


def _layer_gradients(dy: T, x: T, mean: T, rstd: T, gamma: T) -> tuple[T, T, T]:
    wide = gamma.float()
    return aten.native_layer_norm_backward(dy.float(), x, gamma.shape, mean, rstd, wide, wide, [True] * 3)  # type: ignore[no-any-return]


def add_layer_norm_grad(dy: T, x1: T, x2: T, rstd: T, mean: T, gamma: T, dsum: Optional) -> tuple[T, T, T]:
    dx, dgamma, dbeta = _layer_gradients(dy, x1.float() + x2.float(), mean, rstd, gamma)
    return dx if dsum is None else dx + dsum.float(), dgamma, dbeta


def deep_norm(x: T, gx: T, beta: T, gamma: T, alpha: float, eps: float) -> tuple[T, T, T]:
    total = x.float() * alpha + gx.float()
    y, mean, rstd = torch.native_layer_norm(total, gamma.shape, gamma.float(), beta.float(), eps)
    return mean, rstd, y


def deep_norm_grad(dy: T, x: T, gx: T, gamma: T, mean: T, rstd: T, alpha: float) -> tuple[T, T, T, T]:
    dgx, dgamma, dbeta = _layer_gradients(dy, x.float() * alpha + gx.float(), mean, rstd, gamma)
    return dgx * alpha, dgx, dbeta, dgamma


def group_norm_swish(
    x: T, gamma: Optional, beta: Optional, groups: int, _: str | None, eps: float, swish: bool, scale: float
) -> tuple[T, T, T]:
    given = _dense(x, gamma, beta, *x.shape[:2], x[0, 0].numel(), groups, eps)
    y, mean, rstd = torch.native_group_norm(*given)
    return y * torch.sigmoid(scale * y) if swish else y, mean, rstd


def group_norm_swish_grad(
    dy: T, mean: T, rstd: T, x: T, gamma: T, beta: T, groups: int, _: str | None, scale: float, of_gamma: bool,
    of_beta: bool,
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    sizes = (x.shape[0], x.shape[1], x[0, 0].numel(), groups)
    by_group = x.float().reshape(x.shape[0], groups, -1)
    mean, rstd = mean.float().view(-1, groups), rstd.float().view(-1, groups)
    normal = ((by_group - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).view(x.shape)
    y = normal * _of_channels(x, gamma.float()) + _of_channels(x, beta.float())
    share = torch.sigmoid(scale * y)
    grad = dy.float() * (share + scale * y * share * (1 - share))
    given = _dense(grad, x.float(), mean, rstd, gamma.float())
    return aten.native_group_norm_backward(*given, *sizes, [True, of_gamma, of_beta])  # type: ignore[no-any-return]
