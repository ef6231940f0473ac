"""Optimizer steps as one operator, and element-wise operators on lists of tensors, which optimizers use.

The latter are torch's own on lists: in half precision some round a number before they multiply, others do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family, aten
from pytest_ascend.emulator.signature import parse

family = Family("optimizer")
op = family.op
T = torch.Tensor
Optional = T | None


def _fused(declaration: str, function: Any, lists: int) -> None:
    """Declare a step of whole lists of tensors: torch takes what follows them by the same names."""
    names = [re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", each.name) for each in parse(declaration).parameters]

    def body(*given: Any) -> None:
        how = dict(zip(names[lists:], given[lists:], strict=True))
        tensors = dict(zip(names, (each or [] for each in given[:lists]), strict=False))
        if "steps" in tensors:  # torch_npu passes the number of earlier steps, and what CANN does not look at
            tensors["steps"] = [each + 1 for each in tensors["steps"]]
            tensors["max_exp_avg_sqs"] = tensors["max_exp_avg_sqs"] if how["amsgrad"] else []
        function(*tensors.values(), **how)

    op(declaration, body)


_fused(
    "aclnnFusedAdam(inout TensorList params, inout TensorList grads, inout TensorList expAvgs,"
    " inout TensorList expAvgSqs, inout TensorList maxExpAvgSqs, TensorList steps, Tensor gradScale, Tensor foundInf,"
    " double lr, double beta1, double beta2, double weightDecay, double eps, bool amsgrad, bool maximize)",
    aten._fused_adam_,
    lists=6,
)
_fused(
    "aclnnFusedSgd(inout TensorList params, inout TensorList grads, inout TensorList momentumBuffers, Tensor gradScale,"
    " float weightDecay, float momentum, float lr, float dampening, bool nesterov, bool maximize, bool isFirstStep)",
    aten._fused_sgd_,
    lists=3,
)

Adam = tuple[T, T, T]


def _moments(m: T, v: T, grad: T, beta1: T, beta2: T) -> tuple[T, T]:
    return m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad.square() - v)


def apply_adam(
    var: T, m: T, v: T, beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T, **how: bool
) -> Adam:
    """Step one parameter, in float32; numbers are passed as tensors of the parameter's dtype."""
    dtype = var.dtype
    given = (var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)
    var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad = (each.float() for each in given)
    m, v = _moments(m, v, grad, beta1, beta2)
    ahead = beta1 * m + (1 - beta1) * grad if how.get("use_nesterov") else m
    rate = lr * (1 - beta2_power).sqrt() / (1 - beta1_power)
    return (var - rate * ahead / (v.sqrt() + epsilon)).to(dtype), m.to(dtype), v.to(dtype)


def apply_adam_w(
    var: T, m: T, v: T, beta1_power: T, beta2_power: T, lr: T, decay: T, beta1: T, beta2: T, epsilon: T, grad: T,
    max_norm: Optional = None, *, amsgrad: bool = False, maximize: bool = False,
) -> Adam:  # fmt: skip
    """Step one parameter, in float32. The powers are those of the previous step."""
    given = (var, m, v, beta1_power, beta2_power, lr, decay, beta1, beta2, epsilon, grad)
    dtype = var.dtype
    var, m, v, beta1_power, beta2_power, lr, decay, beta1, beta2, epsilon, grad = (each.float() for each in given)
    m, v = _moments(m, v, -grad if maximize else grad, beta1, beta2)
    square = v if max_norm is None or not amsgrad else torch.maximum(max_norm.float(), v)
    step = (m / (1 - beta1_power * beta1)) / ((square / (1 - beta2_power * beta2)).sqrt() + epsilon)
    return (var * (1 - lr * decay) - lr * step).to(dtype), m.to(dtype), v.to(dtype)


def apply_bert_adam(
    var: T, m: T, v: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T, max_norm: T, norm: T, decay: T,
    *_: T, adam_mode: str,
) -> Adam:  # fmt: skip
    """Step one parameter, in float32, without a correction for the first steps; large gradients are clipped."""
    if adam_mode != "adam":
        raise NotImplementedError(f"adam_mode {adam_mode} is not implemented")
    dtype = var.dtype
    given = (var, m, v, lr, beta1, beta2, epsilon, grad, max_norm, norm, decay)
    var, m, v, lr, beta1, beta2, epsilon, grad, max_norm, norm, decay = (each.float() for each in given)
    if max_norm > 0 and norm > max_norm:
        grad = grad * (max_norm / norm)
    m, v = _moments(m, v, grad, beta1, beta2)
    return (var - lr * (m / (v.sqrt() + epsilon) + decay * var)).to(dtype), m.to(dtype), v.to(dtype)


def apply_adam_in_place(*given: Any) -> None:
    *tensors, _, nesterov = given
    for target, made in zip(tensors[:3], apply_adam(*tensors, use_nesterov=nesterov), strict=True):
        target.copy_(made)


def apply_adam_w_in_place(*given: Any) -> None:
    *tensors, amsgrad, maximize = given
    for target, made in zip(tensors[:3], apply_adam_w(*tensors, amsgrad=amsgrad, maximize=maximize), strict=True):
        target.copy_(made)


Lists = list[T]

_UNARY = (
    *("Abs", "Acos", "Asin", "Atan", "Cos", "Cosh", "Erf", "Erfc", "Exp", "Expm1", "Log", "Log10", "Log1p", "Log2"),
    *("Neg", "Reciprocal", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
)

#: With a second operand: a list, one number (in a tensor, or in a scalar for V2), or one number per tensor.
_BINARY = ("Add", "Div", "Maximum", "Minimum", "Mul", "Pow", "Sub")
_WITH_ALPHA = ("Add", "Sub")
_TERNARY = ("Addcdiv", "Addcmul")

#: The modes of RoundOffNumber, by CANN's numbers.
_ROUNDING = {1: "round", 2: "floor", 3: "ceil", 5: "trunc", 7: "frac"}


def _apply(name: str, x: Lists, *rest: Any, out: Lists, **options: Any) -> None:
    """Apply torch's function on lists; an output that is the input is changed in place."""
    # Tensors without elements have no memory, and are ignored.
    told = [(one, other) for one, other in zip(x, out, strict=False) if one.numel()]
    if bool(told) and told[0][0].data_ptr() == told[0][1].data_ptr() and told[0][0].dtype == told[0][1].dtype:
        getattr(torch, f"_foreach_{name}_")(x, *rest, **options)
    else:
        _copy(out, getattr(torch, f"_foreach_{name}")(x, *rest, **options))


def _number(scalar: Any) -> Any:
    """Return a number from a scalar, or from a tensor on the device."""
    return scalar.item() if isinstance(scalar, T) else scalar


def _numbers(scalars: Any) -> Any:
    return scalars.tolist() if isinstance(scalars, T) else scalars


_Body = Callable[..., None]


def _plain(name: str) -> _Body:
    return lambda *lists, out: _apply(name, *lists, out=out)


def _stepwise(name: str, numbers: Callable[[Any], Any], steps: Callable[..., Lists], *, by_name: str = "") -> _Body:
    """Return a kernel that rounds after each step in float16, and computes bfloat16 in float32.

    CANN's on lists do the same: in float16 they multiply by a number of that dtype (Muls, Axpy), and then add. Other
    dtypes are torch's, which takes the number as its last argument or ``by_name``.
    """

    def body(*given: Any, out: Lists) -> None:
        *lists, scalars = given
        dtype, value = lists[0][0].dtype, numbers(scalars)
        if dtype is torch.float16:
            _copy(out, steps(*lists, torch.tensor(value, dtype=dtype).tolist()))
            return
        wide = [[each.float() for each in some] if dtype is torch.bfloat16 else some for some in lists]
        _apply(name, *wide, *([] if by_name else [value]), out=out, **({by_name: value} if by_name else {}))

    return body


def _with_alpha(name: str) -> _Body:
    combined = getattr(torch, f"_foreach_{name}")
    return _stepwise(
        name,
        _number,
        lambda a, b, alpha: combined(a, b if alpha == 1 else torch._foreach_mul(b, alpha)),
        by_name="alpha",
    )


def _of_three(name: str, numbers: Callable[[Any], Any]) -> _Body:
    combined = torch._foreach_div if name == "addcdiv" else torch._foreach_mul
    return _stepwise(
        name, numbers, lambda a, b, c, scale: list(torch._foreach_add(a, torch._foreach_mul(combined(b, c), scale)))
    )


def _with_number(name: str) -> _Body:
    return lambda *inputs, out: _apply(name, *inputs[:-1], _number(inputs[-1]), out=out)


def _with_numbers(name: str) -> _Body:
    return lambda *inputs, out: _apply(name, *inputs[:-1], _numbers(inputs[-1]), out=out)


def _declare(name: str, inputs: str, body: _Body) -> None:
    op(f"aclnnForeach{name}({inputs}, out TensorList out)", body, into=True)


for _cann in _UNARY:
    _declare(_cann, "TensorList x", _plain(_cann.lower()))

for _cann in _BINARY:
    _name = _cann.lower()
    _declare(f"{_cann}Scalar", "TensorList x, Tensor scalar", _with_number(_name))
    _declare(f"{_cann}ScalarV2", "TensorList x, Scalar scalar", _with_number(_name))
    _declare(f"{_cann}ScalarList", "TensorList x, ScalarList scalars", _with_numbers(_name))
    if _cann in _WITH_ALPHA:
        _declare(f"{_cann}List", "TensorList x1, TensorList x2, Tensor alpha", _with_alpha(_name))
        _declare(f"{_cann}ListV2", "TensorList x1, TensorList x2, Scalar alpha", _with_alpha(_name))
    else:
        _declare(f"{_cann}List", "TensorList x1, TensorList x2", _plain(_name))

_THREE = "TensorList x1, TensorList x2, TensorList x3"
for _cann in _TERNARY:
    _name = _cann.lower()
    _declare(f"{_cann}Scalar", f"{_THREE}, Tensor scalar", _of_three(_name, _number))
    _declare(f"{_cann}ScalarV2", f"{_THREE}, Scalar scalar", _of_three(_name, _number))
    _declare(f"{_cann}ScalarList", f"{_THREE}, Tensor scalars", _of_three(_name, _numbers))


def _round_off(x: Lists, mode: Any, out: Lists) -> None:
    _apply(_ROUNDING[int(_number(mode))], x, out=out)


def norm(x: Lists, order: Any, out: Lists) -> None:
    for target, value in zip(out, torch._foreach_norm(x, order), strict=True):
        target.copy_(value.view(target.shape))  # torch_npu before 2.6 wants one dimension, of one element


# torch's names begin with an underscore, but its optimizers call them.
_copy = torch._foreach_copy_
_declare("LerpList", "TensorList x1, TensorList x2, TensorList weight", _plain("lerp"))
_declare("LerpScalar", "TensorList x1, TensorList x2, Scalar weight", _with_number("lerp"))
_declare("RoundOffNumber", "TensorList x, Tensor mode", _round_off)
_declare("RoundOffNumberV2", "TensorList x, Scalar mode", _round_off)


def foreach_non_finite_check_and_unscale(grads: list[T], found_inf: T, inv_scale: T) -> None:
    """Tell whether a number is not finite, and unscale all; torch before 2.3 has no CPU kernel of this."""
    for grad in grads:
        if not grad.isfinite().all():
            found_inf.fill_(1)
        grad.copy_((grad.to(inv_scale.dtype) * inv_scale).reshape(grad.shape))


def amp_update_scale(scale: T, tracker: T, found_inf: T, growth: float, backoff: float, interval: int) -> tuple[T, T]:
    """Return the next scale and the number of steps since it changed; torch before 2.3 has no CPU kernel of this."""
    if found_inf.item():
        return scale * backoff, torch.zeros_like(tracker)
    grows = tracker.item() + 1 == interval
    larger = scale * growth
    return larger if grows and larger.isfinite() else scale, torch.zeros_like(tracker) if grows else tracker + 1
