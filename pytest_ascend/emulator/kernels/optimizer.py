"""Optimizer steps as one operator, and element-wise operators on lists of tensors, which optimizers use.

The latter are torch's own on lists: in half precision, some round a number before they multiply and others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_ascend.emulator.registry import T

Adam = tuple[T, T, T]


def _moments(m: T, v: T, grad: T, beta1: T, beta2: T) -> tuple[T, T]:
    return m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad.square() - v)


def in_place(step: Callable[..., Adam], *tensors: T, **how: bool) -> None:
    for target, made in zip(tensors[:3], step(*tensors, **how), strict=True):
        target.copy_(made)


Lists = list[T]

# torch's names begin with an underscore, but its optimizers call them.
_copy = torch._foreach_copy_
#: The modes of RoundOffNumber, by CANN's numbers.
ROUNDING = {1: "round", 2: "floor", 3: "ceil", 5: "trunc", 7: "frac"}


def apply(name: str, x: Lists, *rest: Any, out: Lists, **options: Any) -> None:
    """Apply torch's function on lists; an output that is the input is changed in place."""
    # Tensors without elements have no memory, and are ignored.
    told = [(one, other) for one, other in zip(x, out, strict=False) if one.numel()]
    if bool(told) and told[0][0].data_ptr() == told[0][1].data_ptr() and told[0][0].dtype == told[0][1].dtype:
        getattr(torch, f"_foreach_{name}_")(x, *rest, **options)
    else:
        _copy(out, getattr(torch, f"_foreach_{name}")(x, *rest, **options))


def _in_steps(
    name: str, lists: Sequence[Lists], value: Any, made: Callable[..., Lists], *, out: Lists, key: str = ""
) -> None:
    """Round after each step in float16, and compute bfloat16 in float32.

    CANN's operators on lists do the same: in float16 they multiply by a number of that dtype (Muls, Axpy), and then
    add. Other dtypes use torch's function, which takes the number as its last argument or by the name ``key``.
    """
    dtype = lists[0][0].dtype
    if dtype is torch.float16:
        _copy(out, made(*lists, torch.tensor(value, dtype=dtype).tolist()))
        return
    wide = [[each.float() for each in some] if dtype is torch.bfloat16 else some for some in lists]
    apply(name, *wide, *([] if key else [value]), out=out, **({key: value} if key else {}))


def with_alpha(name: str, x1: Lists, x2: Lists, alpha: Any, out: Lists) -> None:
    combined = getattr(torch, f"_foreach_{name}")

    def made(a: Lists, b: Lists, scale: Any) -> Lists:
        return list(combined(a, b if scale == 1 else torch._foreach_mul(b, scale)))

    _in_steps(name, (x1, x2), alpha, made, out=out, key="alpha")


def of_three(name: str, x1: Lists, x2: Lists, x3: Lists, value: Any, out: Lists) -> None:
    combined: Any = torch._foreach_div if name == "addcdiv" else torch._foreach_mul

    def made(a: Lists, b: Lists, c: Lists, scale: Any) -> Lists:
        return list(torch._foreach_add(a, torch._foreach_mul(combined(b, c), scale)))

    _in_steps(name, (x1, x2, x3), value, made, out=out)


def norm(x: Lists, order: Any, out: Lists) -> None:
    for target, value in zip(out, torch._foreach_norm(x, order), strict=True):
        target.copy_(value.view(target.shape))  # torch_npu before 2.6 wants one dimension, of one element


def foreach_non_finite_check_and_unscale(grads: list[T], found_inf: T, inv_scale: T) -> None:
    """Report whether any number is not finite, and unscale all; torch before 2.3 has no CPU kernel of this."""
    for grad in grads:
        if not grad.isfinite().all():
            found_inf.fill_(1)
        grad.copy_((grad.to(inv_scale.dtype) * inv_scale).reshape(grad.shape))
