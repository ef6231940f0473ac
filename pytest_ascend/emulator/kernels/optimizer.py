"""Optimizer steps in one operator."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family, aten

family = Family("optimizer")
T = torch.Tensor
Optional = T | None


@family.kernel(
    "aclnnApplyAdamWV2(inout Tensor var, inout Tensor m, inout Tensor v, inout Tensor maxV, Tensor grad, Tensor step,"
    " float lr, float beta1, float beta2, float weightDecay, float eps, bool amsgrad, bool maximize)"
)
def apply_adam_w_v2(
    var: T,
    m: T,
    v: T,
    max_v: Optional,
    grad: T,
    step: T,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
) -> None:
    """Step one parameter. ``step`` counts the steps before this one.

    CANN takes float32 numbers: a beta of 0.9 is 0.89999998, so that not all bits of the results are CPU's.
    """
    aten._fused_adamw_(
        [var],
        [grad],
        [m],
        [v],
        [max_v] if amsgrad else [],
        [step + 1],
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=maximize,
    )


@family.kernel(
    "aclnnFusedAdam(inout TensorList params, inout TensorList grads, inout TensorList expAvgs,"
    " inout TensorList expAvgSqs, inout TensorList maxExpAvgSqs, TensorList steps, Tensor gradScale, Tensor foundInf,"
    " double lr, double beta1, double beta2, double weightDecay, double eps, bool amsgrad, bool maximize)"
)
def fused_adam(
    params: list[T],
    grads: list[T],
    exp_avgs: list[T],
    exp_avg_sqs: list[T],
    max_exp_avg_sqs: list[T] | None,
    steps: list[T],
    grad_scale: Optional,
    found_inf: Optional,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
) -> None:
    aten._fused_adam_(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs or [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=maximize,
        grad_scale=grad_scale,
        found_inf=found_inf,
    )


@family.kernel(
    "aclnnFusedSgd(inout TensorList params, inout TensorList grads, inout TensorList momentumBuffers, Tensor gradScale,"
    " float weightDecay, float momentum, float lr, float dampening, bool nesterov, bool maximize, bool isFirstStep)"
)
def fused_sgd(
    params: list[T],
    grads: list[T],
    momentum_buffers: list[T] | None,
    grad_scale: Optional,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> None:
    aten._fused_sgd_(
        params,
        grads,
        momentum_buffers or [],
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=is_first_step,
        grad_scale=grad_scale,
    )


Adam = tuple[T, T, T]


def _moments(m: T, v: T, grad: T, beta1: T, beta2: T) -> tuple[T, T]:
    return m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad.square() - v)


@family.kernel_named("ApplyAdamD")
def apply_adam(
    var: T, m: T, v: T, beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T, **how: bool
) -> Adam:
    """Step one parameter, in float32; numbers come as tensors of the parameter's dtype."""
    dtype = var.dtype
    given = (var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)
    var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad = (each.float() for each in given)
    m, v = _moments(m, v, grad, beta1, beta2)
    ahead = beta1 * m + (1 - beta1) * grad if how.get("use_nesterov") else m
    rate = lr * (1 - beta2_power).sqrt() / (1 - beta1_power)
    return (var - rate * ahead / (v.sqrt() + epsilon)).to(dtype), m.to(dtype), v.to(dtype)


@family.kernel_named("ApplyAdamW")
def apply_adam_w(
    var: T, m: T, v: T, beta1_power: T, beta2_power: T, lr: T, decay: T, beta1: T, beta2: T, epsilon: T, grad: T,
    max_norm: Optional = None, *, amsgrad: bool = False, maximize: bool = False,
) -> Adam:  # fmt: skip
    """Step one parameter, in float32. The powers are those of the step before."""
    if amsgrad or max_norm is not None:
        raise NotImplementedError("amsgrad is not implemented")
    given = (var, m, v, beta1_power, beta2_power, lr, decay, beta1, beta2, epsilon, grad)
    dtype = var.dtype
    var, m, v, beta1_power, beta2_power, lr, decay, beta1, beta2, epsilon, grad = (each.float() for each in given)
    m, v = _moments(m, v, -grad if maximize else grad, beta1, beta2)
    step = (m / (1 - beta1_power * beta1)) / ((v / (1 - beta2_power * beta2)).sqrt() + epsilon)
    return (var * (1 - lr * decay) - lr * step).to(dtype), m.to(dtype), v.to(dtype)
