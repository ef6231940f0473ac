"""Element-wise operators on lists of tensors, which optimizers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family

family = Family("foreach")
op = family.op
T = torch.Tensor
Lists = list[T]

_UNARY = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Asin": torch.asin,
    "Atan": torch.atan,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Erfc": torch.erfc,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Log": torch.log,
    "Log10": torch.log10,
    "Log1p": torch.log1p,
    "Log2": torch.log2,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}

#: With a second operand: a list, one number (in a tensor, or in a scalar for V2), or a number for each tensor.
_BINARY = {
    "Add": torch.add,
    "Div": torch.div,
    "Maximum": torch.clamp_min,
    "Minimum": torch.clamp_max,
    "Mul": torch.mul,
    "Pow": torch.pow,
    "Sub": torch.sub,
}

_TERNARY = {"Addcdiv": torch.addcdiv, "Addcmul": torch.addcmul}

#: The modes of RoundOffNumber, as CANN numbers them.
_ROUNDING = {2: torch.floor, 3: torch.ceil, 4: torch.round, 5: torch.trunc, 7: torch.frac}


def _each(function: Callable[..., Any], out: Lists, *lists: Any, **options: Any) -> None:
    """Apply a function that takes ``out=`` to the first elements of all lists, then to the second, and so on."""
    for target, *values in zip(out, *lists, strict=True):
        function(*values, out=target, **options)


def _number(scalar: Any) -> Any:
    """Give one number from a scalar, or from a tensor on the device that holds it."""
    return scalar.item() if isinstance(scalar, T) else scalar


def _unary(function: Callable[..., T]) -> Callable[..., None]:
    return lambda x, out: _each(function, out, x)


def _with_lists(function: Callable[..., T]) -> Callable[..., None]:
    return lambda *lists, out: _each(function, out, *lists)


def _with_alpha(function: Callable[..., T]) -> Callable[..., None]:
    return lambda x1, x2, alpha, out: _each(function, out, x1, x2, alpha=_number(alpha))


def _with_number(function: Callable[..., T]) -> Callable[..., None]:
    return lambda x, scalar, out: _each(function, out, x, [_number(scalar)] * len(x))


def _with_value(function: Callable[..., T]) -> Callable[..., None]:
    return lambda x1, x2, x3, value, out: _each(function, out, x1, x2, x3, value=_number(value))


def _with_values(function: Callable[..., T]) -> Callable[..., None]:
    def body(x1: Lists, x2: Lists, x3: Lists, values: T, out: Lists) -> None:
        for target, first, second, third, value in zip(out, x1, x2, x3, values.tolist(), strict=True):
            function(first, second, third, value=value, out=target)

    return body


for _name, _function in _UNARY.items():
    op(f"aclnnForeach{_name}(TensorList x, out TensorList out)", _unary(_function), into=True)

for _name, _function in _BINARY.items():
    _scalar = _with_number(_function)
    op(f"aclnnForeach{_name}Scalar(TensorList x, Tensor scalar, out TensorList out)", _scalar, into=True)
    op(f"aclnnForeach{_name}ScalarV2(TensorList x, Scalar scalar, out TensorList out)", _scalar, into=True)
    _list = _with_lists(_function)
    op(f"aclnnForeach{_name}ScalarList(TensorList x, ScalarList scalars, out TensorList out)", _list, into=True)
    if _name in ("Add", "Sub"):
        _alpha = _with_alpha(_function)
        op(
            f"aclnnForeach{_name}List(TensorList x1, TensorList x2, Tensor alpha, out TensorList out)",
            _alpha,
            into=True,
        )
        op(
            f"aclnnForeach{_name}ListV2(TensorList x1, TensorList x2, Scalar alpha, out TensorList out)",
            _alpha,
            into=True,
        )
    else:
        op(f"aclnnForeach{_name}List(TensorList x1, TensorList x2, out TensorList out)", _list, into=True)

_THREE = "TensorList x1, TensorList x2, TensorList x3"
for _name, _function in _TERNARY.items():
    _value = _with_value(_function)
    op(f"aclnnForeach{_name}Scalar({_THREE}, Tensor scalar, out TensorList out)", _value, into=True)
    op(f"aclnnForeach{_name}ScalarV2({_THREE}, Scalar scalar, out TensorList out)", _value, into=True)
    op(
        f"aclnnForeach{_name}ScalarList({_THREE}, Tensor scalars, out TensorList out)",
        _with_values(_function),
        into=True,
    )


def _lerp_scalar(start: Lists, end: Lists, weight: float, out: Lists) -> None:
    _each(torch.lerp, out, start, end, [weight] * len(start))


def _pow_scalar_and_tensor(scalar: Any, x: Lists, out: Lists) -> None:
    _each(torch.pow, out, [scalar] * len(x), x)


def _round_off(x: Lists, mode: Any, out: Lists) -> None:
    _each(_ROUNDING[int(_number(mode))], out, x)


def foreach_norm(x: Lists, order: float) -> Lists:
    return torch._foreach_norm(x, order)  # type: ignore[return-value]  # noqa: SLF001  no public name


op(
    "aclnnForeachLerpList(TensorList x1, TensorList x2, TensorList weight, out TensorList out)",
    _with_lists(torch.lerp),
    into=True,
)
op("aclnnForeachLerpScalar(TensorList x1, TensorList x2, Scalar weight, out TensorList out)", _lerp_scalar, into=True)
op("aclnnForeachPowScalarAndTensor(Scalar scalar, TensorList x, out TensorList out)", _pow_scalar_and_tensor, into=True)
op("aclnnForeachRoundOffNumber(TensorList x, Tensor roundMode, out TensorList out)", _round_off, into=True)
op("aclnnForeachRoundOffNumberV2(TensorList x, Scalar roundMode, out TensorList out)", _round_off, into=True)
op("aclnnForeachNorm(TensorList x, Scalar order, out TensorList out)", foreach_norm)
op("aclnnForeachCopy(TensorList x, out TensorList out)", lambda x: x)
op("aclnnForeachZeroInplace(inout TensorList x)", torch._foreach_zero_)  # noqa: SLF001  no public name
