"""Element-wise arithmetic of two or three operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.registry import T

Number = complex


def wide(function: Callable[..., Any], *operands: Any, out: T, **how: Any) -> None:
    """Compute float64 operands in float64.

    An integer tensor and a zero-dimensional float64 tensor give float64; torch_npu passes the latter as a scalar, with
    which torch would compute in its default dtype.
    """
    if out.dtype is torch.float64:
        operands = tuple(each.double() if isinstance(each, T) else each for each in operands)
    function(*operands, **how, out=out)


def times(x: T, number: Number, *, out: T) -> T:
    """Multiply by a number. Integers times a fraction compute in float64, bool in float32; the result may be cast back.

    A 950 rejects casting back, as torch does. Source: InferTensorScalarDtype and CheckMulsPromoteDtype of aclnn_mul.cpp
    (ops-math c41933244c31).
    """
    if is_950() or torch.can_cast(torch.result_type(x, number), out.dtype):
        wide(torch.mul, x, number, out=out)
    else:
        out.copy_((x.float() if x.dtype is torch.bool else x.double()) * number)
    return out


def over_zero(divide: Callable[..., Any], x: T, y: T | Number, **out: T) -> Any:
    """Return -1, or 255 for uint8, for integers divided by zero, where torch's CPU kernels raise an error.

    Source: goldens of math/floor_mod and math/truncate_mod in CANN's ops-math, commit c41933244c31.
    """
    divisor = torch.as_tensor(y)
    zero = divisor == 0
    if torch.result_type(x, y).is_floating_point or not zero.any():
        return divide(x, y, **out)
    made = divide(x, divisor.masked_fill(zero, 1), **out)
    return made.masked_fill_(zero, 255 if made.dtype is torch.uint8 else -1)


#: CANN's numbers for the rounding of a quotient.
ROUNDING = (None, "trunc", "floor")
