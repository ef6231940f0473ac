"""Normalization: over the batch, over a layer, over groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pytest_ascend.emulator.choices import emulated_family
from pytest_ascend.emulator.registry import Optional, T, aten


def _in_dtype_of(weight: Optional, *statistics: Optional) -> tuple[Optional, ...]:
    """Return statistics, which torch_npu keeps in float32, in the dtype of the parameters, as the CPU needs them."""
    return tuple(each if each is None or weight is None else each.to(weight.dtype) for each in statistics)


# torch's CPU kernel for group norm ignores the strides of its parameters.


def _dense(*given: Any) -> Iterator[Any]:
    return (each.contiguous() if isinstance(each, T) else each for each in given)


# --- over a batch shared by several devices: statistics of each, combined, and the same for gradients ---


def _of_channels(x: T, values: T) -> T:
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _but_channels(x: T) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _moved(
    mean: T, spread: T, total: T, running_mean: Optional, running_var: Optional, momentum: float, eps: float
) -> tuple[T, T]:
    """Move running statistics towards those of a batch; return the mean, and the normalizing factor."""
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((spread * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (spread + eps).rsqrt()


def batch_norm_gather_sums(
    sums: T, squares: T, counts: T, running_mean: T, running_var: T, momentum: float, eps: float
) -> tuple[T, T]:
    """Return statistics of all ranks from sums: older torch_npu has its own SyncBatchNorm."""
    total = counts.sum()
    mean = sums.sum(0) / total
    return _moved(mean, squares.sum(0) / total - mean.square(), total, running_mean, running_var, momentum, eps)


def root_mean_square(wide: T, gamma: T, eps: float) -> T:
    """Return the reciprocal of the root mean square over the dimensions of ``gamma``, with dimensions kept."""
    return wide.square().mean(list(range(wide.dim() - gamma.dim(), wide.dim())), keepdim=True).add(eps).rsqrt()


def rms_normal(x: T, gamma: T, eps: float, beta: Optional = None) -> T:
    """Return x over its root mean square, times gamma, plus beta, in float32."""
    normal = x.float() * root_mean_square(x.float(), gamma, eps) * gamma.float()
    return normal if beta is None else normal + beta.float()


def rms_norm(x: T, gamma: T, eps: float) -> tuple[T, T]:
    """Return x over its root mean square, rounded once, and the reciprocal root in float32, with dimensions kept."""
    wide = x.float()
    rstd = root_mean_square(wide, gamma, eps)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def rounded_rms_norm(wide: T, gamma: T, eps: float, dtype: torch.dtype) -> tuple[T, T]:
    """Return the result of :func:`rms_norm`, also rounded to ``dtype`` before the product with gamma."""
    rstd = root_mean_square(wide, gamma, eps)
    return ((wide * rstd).to(dtype).float() * gamma.float()).to(dtype), rstd


def add_rms_norm(x1: T, x2: T, gamma: T, eps: float) -> tuple[T, T, T]:
    """Return the normalized sum x1 + x2, the reciprocal of its root mean square in float32, and x1 + x2.

    An A2 and an A3 round the sum first, others only results (golden of add_rms_norm, ops-nn e5c3fa9327ea).
    """
    total, kind = x1.float() + x2.float(), emulated_family()
    x = total.to(x1.dtype)
    if kind is None or kind.name in {"A2", "A3"}:
        return (*rounded_rms_norm(x.float(), gamma, eps, x.dtype), x)
    return (*rms_norm(total, gamma, eps), x)


def _layer_gradients(dy: T, x: T, mean: T, rstd: T, gamma: T) -> tuple[T, T, T]:
    wide = gamma.float()
    return aten.native_layer_norm_backward(dy.float(), x, gamma.shape, mean, rstd, wide, wide, [True] * 3)  # type: ignore[no-any-return]
