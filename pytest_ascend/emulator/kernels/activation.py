"""Activation functions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family, aten

T = torch.Tensor
Number = complex


family = Family("activation")
op = family.op


def _gelu(self: T, *, out: T) -> T:
    """Compute GELU by its tanh formula: the only one of aclnnGelu (CANN, golden of activation/gelu in ops-nn).

    In float16, GELU of +Inf is Inf or NaN in torch's kernels, by processor: Inf is right.
    """
    aten.gelu.out(self, approximate="tanh", out=out)
    return out.masked_fill_(self == torch.inf, torch.inf) if self.dtype == torch.float16 else out


# The arguments are torch's, in torch's order, and torch's overload with an output takes all of them.
_FORWARD: dict[str, Callable[..., Any]] = {
    "aclnnElu(Tensor self, Scalar alpha, Scalar scale, Scalar inputScale, out Tensor out)": aten.elu.out,
    "aclnnGelu(Tensor self, out Tensor out)": _gelu,
    "aclnnGlu(Tensor self, int64 dim, out Tensor out)": aten.glu.out,
    "aclnnHardshrink(Tensor self, Scalar lambd, out Tensor out)": aten.hardshrink.out,
    "aclnnHardsigmoid(Tensor self, out Tensor out)": aten.hardsigmoid.out,
    "aclnnHardswish(Tensor self, out Tensor out)": aten.hardswish.out,
    "aclnnHardtanh(Tensor self, Scalar min, Scalar max, out Tensor out)": aten.hardtanh.out,
    "aclnnLeakyRelu(Tensor self, Scalar negativeSlope, out Tensor out)": aten.leaky_relu.out,
    "aclnnLogSigmoid(Tensor self, out Tensor out)": aten.log_sigmoid.out,
    "aclnnMish(Tensor self, out Tensor out)": aten.mish.out,
    "aclnnRelu(Tensor self, out Tensor out)": partial(aten.clamp_min.out, min=0),  # relu.out copies
    "aclnnSilu(Tensor self, out Tensor out)": aten.silu.out,
    "aclnnSoftplus(Tensor self, Scalar beta, Scalar threshold, out Tensor out)": aten.softplus.out,
    "aclnnSoftshrink(Tensor self, Scalar lambd, out Tensor out)": aten.softshrink.out,
    "aclnnThreshold(Tensor self, Scalar threshold, Scalar value, out Tensor out)": aten.threshold.out,
}

for _declaration, _function in _FORWARD.items():
    op(_declaration, _function, into=True)

_INPLACE: dict[str, Callable[..., Any]] = {
    "aclnnInplaceCelu(inout Tensor self, Scalar alpha)": aten.celu_,
    "aclnnInplaceElu(inout Tensor self, Scalar alpha, Scalar scale, Scalar inputScale)": aten.elu_,
    "aclnnInplaceHardsigmoid(inout Tensor self)": aten.hardsigmoid_,
    "aclnnInplaceHardswish(inout Tensor self)": aten.hardswish_,
    "aclnnInplaceHardtanh(inout Tensor self, Scalar min, Scalar max)": aten.hardtanh_,
    "aclnnInplaceLeakyRelu(inout Tensor self, Scalar negativeSlope)": aten.leaky_relu_,
    "aclnnInplaceMish(inout Tensor self)": aten.mish_,
    "aclnnInplaceRelu(inout Tensor self)": aten.relu_,
    "aclnnInplaceThreshold(inout Tensor self, Scalar threshold, Scalar value)": aten.threshold_,
}

for _declaration, _function in _INPLACE.items():
    op(_declaration, _function.default)  # type: ignore[attr-defined]

_BACKWARD: dict[str, Callable[..., Any]] = {
    "aclnnEluBackward(Tensor grad, Scalar alpha, Scalar scale, Scalar inputScale, bool isResult, Tensor selfOrResult, "
    "out Tensor gradInput)": aten.elu_backward,
    "aclnnGluBackward(Tensor grad, Tensor self, int64 dim, out Tensor out)": aten.glu_backward,
    "aclnnHardshrinkBackward(Tensor grad, Tensor self, Scalar lambd, out Tensor gradInput)": aten.hardshrink_backward,
    "aclnnHardsigmoidBackward(Tensor grad, Tensor self, out Tensor out)": aten.hardsigmoid_backward,
    "aclnnLeakyReluBackward(Tensor grad, Tensor self, Scalar negativeSlope, bool selfIsResult, "
    "out Tensor out)": aten.leaky_relu_backward,
    "aclnnSigmoidBackward(Tensor grad, Tensor output, out Tensor gradInput)": aten.sigmoid_backward,
    "aclnnSiluBackward(Tensor grad, Tensor self, out Tensor gradInput)": aten.silu_backward,
    "aclnnSoftplusBackward(Tensor grad, Tensor self, Scalar beta, Scalar threshold, "
    "out Tensor gradInput)": aten.softplus_backward,
    "aclnnSoftshrinkBackward(Tensor grad, Tensor self, Scalar lambd, out Tensor gradInput)": aten.softshrink_backward,
    "aclnnTanhBackward(Tensor grad, Tensor output, out Tensor gradInput)": aten.tanh_backward,
    "aclnnThresholdBackward(Tensor grad, Tensor self, Scalar threshold, out Tensor out)": aten.threshold_backward,
}


def _into_gradient(function: Callable[..., Any]) -> Callable[..., None]:
    backward = function.grad_input  # type: ignore[attr-defined]

    def body(*arguments: Any, out: T) -> None:
        backward(*arguments, grad_input=out)

    return body


for _declaration, _function in _BACKWARD.items():
    op(_declaration, _into_gradient(_function), into=True)

# The gradient at NaN is let through. Source: golden of activation/hardtanh_grad in CANN's ops-nn, commit e5c3fa9327ea.
op(
    "aclnnHardtanhBackward(Tensor grad, Tensor self, Scalar min, Scalar max, out Tensor out)",
    lambda grad, x, low, high: grad.masked_fill((x <= low) | (x >= high), 0),
)
op("aclnnCelu(Tensor self, Scalar alpha, out Tensor out)", torch.celu)
op("aclnnPrelu(Tensor self, Tensor weight, out Tensor out)", aten._prelu_kernel.default)
op("aclnnHardswishBackward(Tensor grad, Tensor self, out Tensor out)", aten.hardswish_backward.default)
op("aclnnHardswishBackwardV2(Tensor grad, Tensor self, out Tensor out)", aten.hardswish_backward.default)
op("aclnnMishBackward(Tensor grad, Tensor self, out Tensor gradInput)", aten.mish_backward.default)


def _prelu_backward(grad: T, self: T, weight: T, *, out: tuple[T, T]) -> None:
    """Here weight is a vector, one number per channel; the forward reshapes it to broadcast."""
    by_channel = weight.view([-1 if axis == 1 else 1 for axis in range(self.ndim)])
    grad_input, grad_weight = aten._prelu_kernel_backward(grad, self, by_channel)
    out[0].copy_(grad_input)
    out[1].copy_(grad_weight.sum_to_size(by_channel.shape).view_as(out[1]))


op(
    "aclnnPreluBackward(Tensor grad, Tensor self, Tensor weight, out Tensor gradInput, out Tensor gradWeight)",
    _prelu_backward,
    into=True,
)


def _gelu_v2(x: T, approximate: int, *, out: T) -> None:
    aten.gelu.out(x, approximate="tanh" if approximate else "none", out=out)


def _gelu_backward_v2(grad: T, self: T, approximate: str, *, out: T) -> None:
    aten.gelu_backward.grad_input(grad, self, approximate=approximate, grad_input=out)


op(
    "aclnnGeluBackward(Tensor grad, Tensor self, out Tensor gradInput)",
    partial(_gelu_backward_v2, approximate="tanh"),
    into=True,
)
op("aclnnGeluV2(Tensor x, int64 approximate, out Tensor y)", _gelu_v2, into=True)
op(
    "aclnnGeluBackwardV2(Tensor grad, Tensor self, text approximate, out Tensor gradInput)",
    _gelu_backward_v2,
    into=True,
)

# torch's CPU function stores what its gradient needs in a buffer, for which torch_npu allocates no room.


@family.kernel("aclnnLogSigmoidForward(Tensor self, out Tensor out, out Tensor buffer)")
def log_sigmoid_forward(self: T) -> tuple[T, None]:
    return torch.nn.functional.logsigmoid(self), None


@family.kernel("aclnnLogSigmoidBackward(Tensor grad, Tensor self, Tensor buffer, out Tensor gradInput)")
def log_sigmoid_backward(grad: T, self: T, _: T) -> Any:
    _, buffer = aten.log_sigmoid_forward(self)
    return aten.log_sigmoid_backward(grad, self, buffer)


def _softmax(self: T, dim: int, *, out: T) -> None:
    torch.softmax(self, dim, dtype=out.dtype, out=out)


def _log_softmax(self: T, dim: int, *, out: T) -> None:
    torch.log_softmax(self, dim, dtype=out.dtype, out=out)


def _softmax_backward(grad: T, output: T, dim: int, *, out: T) -> None:
    grad, output = grad.contiguous(), output.contiguous()  # torch before 2.6 is wrong about other strides
    if out.is_contiguous() and out.dtype == grad.dtype:
        aten._softmax_backward_data.out(grad, output, dim, out.dtype, grad_input=out)
    else:  # which torch's function would write as if it were contiguous
        out.copy_(aten._softmax_backward_data(grad, output, dim, grad.dtype))


def _log_softmax_backward(grad: T, output: T, dim: int, *, out: T) -> None:
    if out.is_contiguous() and out.dtype == grad.dtype:
        aten._log_softmax_backward_data.out(grad, output, dim, out.dtype, out=out)
    else:
        out.copy_(aten._log_softmax_backward_data(grad, output, dim, grad.dtype))


op("aclnnSoftmax(Tensor self, int64 dim, out Tensor out)", _softmax, into=True)
op("aclnnLogSoftmax(Tensor self, int64 dim, out Tensor out)", _log_softmax, into=True)
op("aclnnSoftmaxBackward(Tensor grad, Tensor output, int64 dim, out Tensor out)", _softmax_backward, into=True)
op("aclnnLogSoftmaxBackward(Tensor grad, Tensor output, int64 dim, out Tensor out)", _log_softmax_backward, into=True)


# --- the same, called by name (older API) ---

family.named("Mish", torch.nn.functional.mish)


@family.kernel_named("MishGrad")
def mish_grad(grad: T, x: T, tanhx: T | None = None) -> T:
    """Differentiate Mish; ``tanhx`` is tanh(softplus(x)). Source: ops-nn e5c3fa9327ea, activation/mish_grad."""
    if tanhx is None:
        return aten.mish_backward(grad, x)  # type: ignore[no-any-return]
    wide, tanhx = x.float(), tanhx.float()
    return (grad.float() * (tanhx + wide * torch.sigmoid(wide) * (1 - tanhx.square()))).to(x.dtype)


family.named("Swish", lambda x, scale: aten.silu(x) if scale == 1 else x * torch.sigmoid(scale * x))
family.named("SwishGrad", lambda grad, x, _, scale=1.0: aten.silu_backward(grad, scale * x))


#: Functions with an output and in place, by their name in CANN; torch writes it in small letters.
_BOTH = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Erfc", "Erfinv"),
    *("Exp", "Exp2", "Expm1", "Floor", "Frac", "Log", "Log10", "Log1p", "Log2", "Reciprocal", "Rsqrt"),
    *("Sigmoid", "Sin", "Sinc", "Sinh", "Sqrt", "Tan", "Tanh"),
)
#: Functions that CANN has only with an output. Its Sign is also sgn, which is the same for real numbers.
_WITH_OUTPUT = {
    "Abs": "abs",
    "AngleV2": "angle",
    "BitwiseNot": "bitwise_not",
    "Neg": "neg",
    "Round": "round",
    "Sign": "sgn",
    "Trunc": "trunc",
}

for _name, _torch_name in {**{each: each.lower() for each in _BOTH}, **_WITH_OUTPUT}.items():
    op(f"aclnn{_name}(Tensor self, out Tensor out)", getattr(torch, _torch_name), into=True)
for _name in _BOTH:
    op(f"aclnnInplace{_name}(inout Tensor self)", getattr(T, f"{_name.lower()}_"))


def _round_decimals(self: T, decimals: int, *, out: T) -> None:
    torch.round(self, decimals=decimals, out=out)


op("aclnnRoundDecimals(Tensor self, int64 decimals, out Tensor out)", _round_decimals, into=True)
op(
    "aclnnInplaceRoundDecimals(inout Tensor self, int64 decimals)",
    lambda self, decimals: self.round_(decimals=decimals),
)
op("aclnnLogit(Tensor self, double eps, out Tensor out)", torch.logit, into=True)


def _logit_grad(x: T, dy: T, eps: float, *, out: T) -> None:
    aten.logit_backward.grad_input(dy, x, eps, grad_input=out)


op("aclnnLogitGrad(Tensor x, Tensor dy, double eps, out Tensor out)", _logit_grad, into=True)


def _replacement(self: T, value: float) -> float | None:
    """The largest float64, the default replacement of infinity, does not fit CANN's float."""
    return None if self.dtype == torch.float64 and math.isinf(value) else value


def _nan_to_num(self: T, nan: float, posinf: float, neginf: float, *, out: T) -> None:
    torch.nan_to_num(self, nan, _replacement(self, posinf), _replacement(self, neginf), out=out)


@family.kernel("aclnnInplaceNanToNum(inout Tensor self, float nan, float posinf, float neginf)")
def inplace_nan_to_num(self: T, nan: float, posinf: float, neginf: float) -> None:
    _nan_to_num(self, nan, posinf, neginf, out=self)


op("aclnnNanToNum(Tensor self, float nan, float posinf, float neginf, out Tensor out)", _nan_to_num, into=True)
