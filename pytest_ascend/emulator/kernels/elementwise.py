"""Arithmetic of two or three operands, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family

T = torch.Tensor
Number = complex


family = Family("elementwise", promoted=True)
op = family.op


def _wide(function: Callable[..., Any]) -> Callable[..., None]:
    """Make float64 operands compute in float64.

    An integer tensor and a float64 tensor without dimensions give float64; torch_npu passes the latter as a scalar,
    with which torch would compute in its default dtype.
    """

    def body(*operands: Any, out: T) -> None:
        if out.dtype is torch.float64:
            operands = tuple(each.double() if isinstance(each, T) else each for each in operands)
        function(*operands, out=out)

    return body


def _over_zero(divide: Callable[..., Any]) -> Callable[..., Any]:
    """Give -1, or 255 of uint8, for integers divided by zero, where torch's CPU kernels raise an error.

    Source: goldens of math/floor_mod and math/truncate_mod in CANN's ops-math, commit c41933244c31.
    """

    def body(x: T, y: T | Number, **out: T) -> Any:
        divisor = torch.as_tensor(y)
        zero = divisor == 0
        if torch.result_type(x, y).is_floating_point or not zero.any():
            return divide(x, y, **out)
        made = divide(x, divisor.masked_fill(zero, 1), **out)
        return made.masked_fill_(zero, 255 if made.dtype is torch.uint8 else -1)

    return body


def _right_shift(x: T, y: T, *, out: T) -> None:
    """Shift by 0 where a number is negative. Source: math/right_shift of CANN's ops-math, golden and kernel."""
    torch.bitwise_right_shift(x, y if y.dtype is torch.bool else y.clamp(min=0), out=out)


#: CANN's numbers for the rounding of a quotient.
ROUNDING = (None, "trunc", "floor")

#: Operators of two tensors, and of a tensor and a scalar if CANN has one: both names, and the function.
_BINARY: list[tuple[str, str | None, Callable[..., Any]]] = [
    ("Mul", "Muls", torch.mul),
    ("Div", "Divs", torch.div),
    ("FmodTensor", "FmodScalar", _over_zero(torch.fmod)),
    ("RemainderTensorTensor", "RemainderTensorScalar", _over_zero(torch.remainder)),
    ("PowTensorTensor", "PowTensorScalar", torch.pow),
    ("XLogYTensor", "XLogYScalarOther", torch.xlogy),
    ("ClampMinTensor", "ClampMin", torch.clamp_min),
    ("ClampMaxTensor", "ClampMax", torch.clamp_max),
    ("LeftShift", None, torch.bitwise_left_shift),
    ("RightShift", None, _right_shift),
    ("BitwiseAndTensor", "BitwiseAndScalar", torch.bitwise_and),
    ("BitwiseOrTensor", "BitwiseOrScalar", torch.bitwise_or),
    ("BitwiseXorTensor", "BitwiseXorScalar", torch.bitwise_xor),
    ("Maximum", None, torch.maximum),
    ("Minimum", None, torch.minimum),
    ("Atan2", None, torch.atan2),
    ("Gcd", None, torch.gcd),
    ("LogAddExp", None, torch.logaddexp),
    ("LogAddExp2", None, torch.logaddexp2),
]

for _tensor, _scalar, _function in _BINARY:
    op(f"aclnn{_tensor}(Tensor self, Tensor other, out Tensor out)", _function, into=True)
    if _scalar:
        op(f"aclnn{_scalar}(Tensor self, Scalar other, out Tensor out)", _wide(_function), into=True)


#: The same in place: an operator with a tensor, one with a scalar, and the method.
_INPLACE: list[tuple[str | None, str | None, Callable[..., Any]]] = [
    ("Mul", "Muls", T.mul_),
    ("Div", "Divs", T.div_),
    ("FloorDivide", "FloorDivides", T.floor_divide_),
    ("FmodTensor", "FmodScalar", _over_zero(T.fmod_)),
    ("RemainderTensorTensor", "RemainderTensorScalar", _over_zero(T.remainder_)),
    ("PowTensorTensor", "PowTensorScalar", T.pow_),
    ("Atan2", None, T.atan2_),
    (None, "XLogYScalarOther", T.xlogy_),
    ("ClampMinTensor", None, T.clamp_min_),
    ("ClampMaxTensor", "ClampMax", T.clamp_max_),
    ("BitwiseAndTensor", "BitwiseAndScalar", T.bitwise_and_),
    ("BitwiseXorTensor", "BitwiseXorScalar", T.bitwise_xor_),
]

for _tensors, _scalar, _function in _INPLACE:
    if _tensors:
        op(f"aclnnInplace{_tensors}(inout Tensor self, Tensor other)", _function)
    if _scalar:
        op(f"aclnnInplace{_scalar}(inout Tensor self, Scalar other)", _function)


def _add(self: T | Number, other: T | Number, alpha: Number, *, out: T) -> None:
    torch.add(self, other, alpha=alpha, out=out)


def _sub(self: T, other: T | Number, alpha: Number, *, out: T) -> None:
    torch.sub(self, other, alpha=alpha, out=out)


def _add_(self: T, other: T | Number, alpha: Number) -> None:
    self.add_(other, alpha=alpha)


def _sub_(self: T, other: T | Number, alpha: Number) -> None:
    self.sub_(other, alpha=alpha)


op("aclnnAdd(Tensor self, Tensor other, Scalar alpha, out Tensor out)", _add, into=True)
op("aclnnAdds(Tensor self, Scalar other, Scalar alpha, out Tensor out)", _wide(_add), into=True)
op("aclnnAddV3(Scalar self, Tensor other, Scalar alpha, out Tensor out)", _wide(_add), into=True)
op("aclnnSub(Tensor self, Tensor other, Scalar alpha, out Tensor out)", _sub, into=True)
op("aclnnSubs(Tensor self, Scalar other, Scalar alpha, out Tensor out)", _wide(_sub), into=True)
op("aclnnInplaceAdd(inout Tensor self, Tensor other, Scalar alpha)", _add_)
op("aclnnInplaceAdds(inout Tensor self, Scalar other, Scalar alpha)", _add_)
op("aclnnInplaceSub(inout Tensor self, Tensor other, Scalar alpha)", _sub_)
op("aclnnInplaceSubs(inout Tensor self, Scalar other, Scalar alpha)", _sub_)


def _rsub(self: T, other: T, alpha: Number, *, out: T) -> None:
    torch.sub(other, self, alpha=alpha, out=out)


def _rsubs(self: T, other: Number, alpha: Number, *, out: T) -> None:
    out.copy_(torch.rsub(self, other, alpha=alpha))


op("aclnnRsub(Tensor self, Tensor other, Scalar alpha, out Tensor out)", _rsub, into=True)
op("aclnnRsubs(Tensor self, Scalar other, Scalar alpha, out Tensor out)", _wide(_rsubs), into=True)


@family.kernel("aclnnAddRelu(Tensor self, Tensor other, Scalar alpha, out Tensor out)")
def add_relu(self: T, other: T, alpha: Number) -> T:
    return torch.add(self, other, alpha=alpha).relu_()


@family.kernel("aclnnInplaceAddRelu(inout Tensor self, Tensor other, Scalar alpha)")
def inplace_add_relu(self: T, other: T, alpha: Number) -> None:
    self.add_(other, alpha=alpha).relu_()


def _div_mode(self: T, other: T | float, mode: int, *, out: T) -> None:
    torch.div(self, other, rounding_mode=ROUNDING[mode], out=out)


def _div_mode_(self: T, other: T | float, mode: int) -> None:
    self.div_(other, rounding_mode=ROUNDING[mode])


def _floor_divide(self: T, other: T | float, *, out: T) -> None:
    torch.div(self, other, rounding_mode="floor", out=out)


op("aclnnDivMod(Tensor self, Tensor other, int32 mode, out Tensor out)", _div_mode, into=True)
op("aclnnDivMods(Tensor self, Scalar other, int32 mode, out Tensor out)", _wide(_div_mode), into=True)
op("aclnnInplaceDivMod(inout Tensor self, Tensor other, int32 mode)", _div_mode_)
op("aclnnInplaceDivMods(inout Tensor self, Scalar other, int32 mode)", _div_mode_)
op("aclnnFloorDivide(Tensor self, Tensor other, out Tensor out)", _floor_divide, into=True)
op("aclnnFloorDivides(Tensor self, Scalar other, out Tensor out)", _wide(_floor_divide), into=True)


def _remainder_of_number(self: float, other: T, *, out: T) -> None:
    out.copy_(torch.remainder(self, other))


op("aclnnRemainderScalarTensor(Scalar self, Tensor other, out Tensor out)", _wide(_remainder_of_number), into=True)
op("aclnnPowScalarTensor(Scalar self, Tensor exponent, out Tensor out)", _wide(torch.pow), into=True)
op("aclnnXLogYScalarSelf(Scalar self, Tensor other, out Tensor out)", _wide(torch.xlogy), into=True)
op("aclnnLeftShifts(Tensor self, Scalar shiftBits, out Tensor out)", torch.bitwise_left_shift, into=True)

op("aclnnClamp(Tensor self, Scalar min, Scalar max, out Tensor out)", torch.clamp, into=True)
op("aclnnClampTensor(Tensor self, Tensor min, Tensor max, out Tensor out)", torch.clamp, into=True)

op("aclnnLerp(Tensor self, Tensor end, Tensor weight, out Tensor out)", torch.lerp, into=True)
op("aclnnLerps(Tensor self, Tensor end, Scalar weight, out Tensor out)", torch.lerp, into=True)
op("aclnnInplaceLerp(inout Tensor self, Tensor end, Tensor weight)", T.lerp_)
op("aclnnInplaceLerps(inout Tensor self, Tensor end, Scalar weight)", T.lerp_)


@family.kernel("aclnnInplaceAddcmul(inout Tensor self, Tensor tensor1, Tensor tensor2, Scalar value)")
def inplace_addcmul(self: T, tensor1: T, tensor2: T, value: Number) -> None:
    self.addcmul_(tensor1, tensor2, value=value)


@family.kernel("aclnnInplaceAddcdiv(inout Tensor self, Tensor tensor1, Tensor tensor2, Scalar value)")
def inplace_addcdiv(self: T, tensor1: T, tensor2: T, value: Number) -> None:
    self.addcdiv_(tensor1, tensor2, value=value)


def _addcmul(self: T, tensor1: T, tensor2: T, value: Number, *, out: T) -> None:
    torch.addcmul(self, tensor1, tensor2, value=value, out=out)


def _addcdiv(self: T, tensor1: T, tensor2: T, value: Number, *, out: T) -> None:
    torch.addcdiv(self, tensor1, tensor2, value=value, out=out)


op("aclnnAddcmul(Tensor self, Tensor tensor1, Tensor tensor2, Scalar value, out Tensor out)", _addcmul, into=True)
op("aclnnAddcdiv(Tensor self, Tensor tensor1, Tensor tensor2, Scalar value, out Tensor out)", _addcdiv, into=True)

# Not into the output: torch_npu conjugates with a new imaginary part, for a tensor whose real part is an input here.
op("aclnnComplex(Tensor real, Tensor imag, out Tensor out)", torch.complex)
op("aclnnPolar(Tensor absolute, Tensor angle, out Tensor out)", torch.polar, into=True)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _operator = _name.capitalize()
    for _kind in ("Tensor", "Scalar"):
        op(f"aclnn{_operator}{_kind}(Tensor self, {_kind} other, out Tensor out)", getattr(torch, _name), into=True)
        op(f"aclnnInplace{_operator}{_kind}(inout Tensor self, {_kind} other)", getattr(T, f"{_name}_"))

op("aclnnLogicalAnd(Tensor self, Tensor other, out Tensor out)", torch.logical_and, into=True)
op("aclnnLogicalOr(Tensor self, Tensor other, out Tensor out)", torch.logical_or, into=True)
op("aclnnLogicalXor(Tensor self, Tensor other, out Tensor out)", torch.logical_xor, into=True)
op("aclnnLogicalNot(Tensor self, out Tensor out)", torch.logical_not, into=True)
op("aclnnInplaceLogicalAnd(inout Tensor self, Tensor other)", T.logical_and_)
op("aclnnInplaceLogicalOr(inout Tensor self, Tensor other)", T.logical_or_)
op("aclnnInplaceLogicalNot(inout Tensor self)", T.logical_not_)

op("aclnnIsFinite(Tensor self, out Tensor out)", torch.isfinite)
op("aclnnIsNegInf(Tensor self, out Tensor out)", torch.isneginf, into=True)
op("aclnnIsPosInf(Tensor self, out Tensor out)", torch.isposinf, into=True)
op("aclnnSignbit(Tensor self, out Tensor out)", torch.signbit, into=True)
op("aclnnSWhere(Tensor condition, Tensor self, Tensor other, out Tensor out)", torch.where, into=True)
op("aclnnIsClose(Tensor self, Tensor other, double rtol, double atol, bool equalNan, out Tensor out)", torch.isclose)


def _equal(self: T, other: T, *, out: T) -> None:
    out.fill_(torch.equal(self, other))


op("aclnnEqual(Tensor self, Tensor other, out Tensor out)", _equal, into=True)


# --- by name (older API), as torch_npu calls operators with jit_compile=True; half precision computes in float32 ---


def _logarithm(x: T, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> T:
    """Return the logarithm of ``scale * x + shift``; a base of -1 is e. Source: ops-math c41933244c31, math/log."""
    x = x if (scale, shift) == (1.0, 0.0) else scale * x + shift
    known = {-1.0: torch.log, 2.0: torch.log2, 10.0: torch.log10}
    return known[base](x) if base in known else torch.log(x) / math.log(base)


def _exponential(x: T, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> T:
    """Return ``base ** (scale * x + shift)``; a base of -1 is e. Source: ops-math c41933244c31, math/exp."""
    x = x if (scale, shift) == (1.0, 0.0) else scale * x + shift
    return torch.exp(x if base == -1.0 else x * math.log(base))


#: Operators with the same name in torch.
_SAME = """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Erfc Erfinv Expm1 Floor Log1p Neg Reciprocal
    Relu Round Rsqrt Sign Sigmoid Sin Sinh Sqrt Square Tan Tanh Trunc Add Sub Mul Maximum Minimum Pow Atan2 Lerp
    IsFinite IsInf IsNan
"""
_NAMED: dict[str, Callable[..., T]] = {
    **{each: getattr(torch, each.lower()) for each in _SAME.split()},
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "Less": torch.lt,
    "Greater": torch.gt,
    "LessEqual": torch.le,
    "GreaterEqual": torch.ge,
    "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or,
    "LogicalNot": torch.logical_not,
    "Log": _logarithm,
    "Exp": _exponential,
    "Gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "SoftplusV2": lambda x, beta=1.0, threshold=20.0: torch.nn.functional.softplus(x, beta, threshold),
    "RealDiv": torch.true_divide,
    "FloorDiv": torch.floor_divide,
    "FloorMod": _over_zero(torch.remainder),
    "Mod": _over_zero(torch.fmod),
    "ClipByValueV2": torch.clamp,
    "AxpyV2": lambda x, other, alpha: x + alpha * other,
    "Addcdiv": lambda x, a, b, value: x + value * (a / b),
    "Addcmul": lambda x, a, b, value: x + value * (a * b),
    "SelectV2": torch.where,
    "Select": torch.where,
}
for _name, _function in _NAMED.items():
    family.named(_name, _function, wide=True)
