"""Normalization: over the batch, over a layer, over groups."""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.registry import Family

family = Family("normalization")
op = family.op
aten = torch.ops.aten
T = torch.Tensor
Optional = T | None
Three = tuple[Optional, Optional, Optional]


def _in_dtype_of(weight: Optional, *statistics: Optional) -> tuple[Optional, ...]:
    """Return statistics, which torch_npu always keeps in float32, as CPU wants them: in the dtype of the parameters."""
    if weight is None:
        return statistics
    return tuple(each if each is None else each.to(weight.dtype) for each in statistics)


def batch_norm(
    x: T,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
    out: tuple[T, T, T],
) -> None:
    """Normalize over the batch. ``saveInvstd`` is 1 / sqrt(var + eps), as on the A2 and A3 series (910B, 910_93)."""
    arguments = (x, weight, bias, running_mean, running_var, training, momentum, eps)
    if training and x.is_contiguous() and (x if weight is None else weight).dtype == out[1].dtype:
        aten.native_batch_norm.out(*arguments, out=out[0], save_mean=out[1], save_invstd=out[2])
        return
    made = torch.native_batch_norm(*arguments)
    for target, value in zip(out, made if training else made[:1], strict=False):
        target.copy_(value)


op(
    "aclnnBatchNorm(Tensor input, Tensor weight, Tensor bias, inout Tensor runningMean, inout Tensor runningVar,"
    " bool training, double momentum, double eps, out Tensor output, out Tensor saveMean, out Tensor saveInvstd)",
    batch_norm,
    into=True,
)


@family.kernel(
    "aclnnBatchNormBackward(Tensor gradOut, Tensor input, Tensor weight, Tensor runningMean, Tensor runningVar,"
    " Tensor saveMean, Tensor saveInvstd, bool training, double eps, BoolArray outputMask,"
    " out Tensor gradInput, out Tensor gradWeight, out Tensor gradBias)"
)
def batch_norm_backward(
    grad: T,
    x: T,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    mean: Optional,
    invstd: Optional,
    training: bool,
    eps: float,
    mask: list[bool],
) -> Three:
    of_parameters = running_mean if weight is None else weight
    statistics = (running_mean, running_var, *_in_dtype_of(of_parameters, mean, invstd))
    return aten.native_batch_norm_backward(grad, x, weight, *statistics, training, eps, mask)  # type: ignore[no-any-return]


@family.kernel(
    "aclnnLayerNorm(Tensor input, IntArray shape, Tensor weight, Tensor bias, double eps, out Tensor out,"
    " out Tensor mean, out Tensor rstd)"
)
def layer_norm(x: T, shape: list[int], weight: Optional, bias: Optional, eps: float) -> tuple[T, T, T]:
    return torch.native_layer_norm(x, shape, weight, bias, eps)


@family.kernel(
    "aclnnLayerNormBackward(Tensor gradOut, Tensor input, IntArray shape, Tensor mean, Tensor rstd, Tensor weight,"
    " Tensor bias, BoolArray outputMask, out Tensor gradInput, out Tensor gradWeight, out Tensor gradBias)"
)
def layer_norm_backward(
    grad: T, x: T, shape: list[int], mean: T, rstd: T, weight: Optional, bias: Optional, mask: list[bool]
) -> Three:
    statistics = _in_dtype_of(weight, mean, rstd)
    return aten.native_layer_norm_backward(grad, x, shape, *statistics, weight, bias, mask)  # type: ignore[no-any-return]


# torch's CPU kernels read the parameters of groups without a look at their strides.


def group_norm(x: T, gamma: Optional, beta: Optional, *rest: Any) -> tuple[T, T, T]:
    return torch.native_group_norm(x.contiguous(), _dense(gamma), _dense(beta), *rest)


def group_norm_backward(grad: T, x: T, mean: T, rstd: T, gamma: Optional, *rest: Any) -> Three:
    return aten.native_group_norm_backward(  # type: ignore[no-any-return]
        grad.contiguous(), x.contiguous(), mean.contiguous(), rstd.contiguous(), _dense(gamma), *rest
    )


def _dense(x: Optional) -> Optional:
    return None if x is None else x.contiguous()


_SIZES = "int64 n, int64 c, int64 hxw, int64 group"

op(
    f"aclnnGroupNorm(Tensor self, Tensor gamma, Tensor beta, {_SIZES}, double eps, out Tensor out, out Tensor mean,"
    " out Tensor rstd)",
    group_norm,
)
op(
    f"aclnnGroupNormBackward(Tensor gradOut, Tensor input, Tensor mean, Tensor rstd, Tensor gamma, {_SIZES},"
    " BoolArray outputMask, out Tensor gradInput, out Tensor gradGamma, out Tensor gradBeta)",
    group_norm_backward,
)
