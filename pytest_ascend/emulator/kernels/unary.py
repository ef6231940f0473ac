"""Functions of one operand, element by element."""

from __future__ import annotations

import math

import torch

from pytest_ascend.emulator.registry import Family, aten

T = torch.Tensor

family = Family("unary")
op = family.op

#: Name in CANN -> name in torch, where there are an operator with an output and one in place.
_BOTH = {
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Erfc": "erfc",
    "Erfinv": "erfinv",
    "Exp": "exp",
    "Exp2": "exp2",
    "Expm1": "expm1",
    "Floor": "floor",
    "Frac": "frac",
    "Log": "log",
    "Log10": "log10",
    "Log1p": "log1p",
    "Log2": "log2",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinc": "sinc",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}

#: Those that CANN has only with an output. Its Sign is also sgn, which is the same for what is not complex.
_WITH_OUTPUT = {
    "Abs": "abs",
    "AngleV2": "angle",
    "BitwiseNot": "bitwise_not",
    "Neg": "neg",
    "Round": "round",
    "Sign": "sgn",
    "Trunc": "trunc",
}

for _name, _torch_name in {**_BOTH, **_WITH_OUTPUT}.items():
    op(f"aclnn{_name}(Tensor self, out Tensor out)", getattr(torch, _torch_name), into=True)
for _name, _torch_name in _BOTH.items():
    op(f"aclnnInplace{_name}(inout Tensor self)", getattr(T, f"{_torch_name}_"))


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
    """The largest float64, which stands for infinity where the user says nothing, does not fit into CANN's float."""
    return None if self.dtype == torch.float64 and math.isinf(value) else value


def _nan_to_num(self: T, nan: float, posinf: float, neginf: float, *, out: T) -> None:
    torch.nan_to_num(self, nan, _replacement(self, posinf), _replacement(self, neginf), out=out)


@family.kernel("aclnnInplaceNanToNum(inout Tensor self, float nan, float posinf, float neginf)")
def inplace_nan_to_num(self: T, nan: float, posinf: float, neginf: float) -> None:
    _nan_to_num(self, nan, posinf, neginf, out=self)


op("aclnnNanToNum(Tensor self, float nan, float posinf, float neginf, out Tensor out)", _nan_to_num, into=True)
