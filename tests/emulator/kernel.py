"""Calls a kernel by itself, without torch_npu, which calls some of them on other chips or in other versions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.kernels import all_kernels, all_named
from pytest_ascend.emulator.tensors import write

from .both import floats

T = torch.Tensor

_KERNELS = {each.name: each for each in all_kernels()}
_NAMED = {each.name: each.body for each in all_named()}
#: What stands for a number that is not given.
_NUMBERS = {"bool": False, "double": 0.0, "float": 0.0, **dict.fromkeys(("int8", "int64", "uint64"), 0)}


def called(name: str, *given: Any, **named: Any) -> Any:
    """Call a kernel with arguments in order, or by the names in its declaration; others are omitted, or zero."""
    kernel = _KERNELS[f"aclnn{name}"]
    inputs = [each for each in kernel.signature.parameters if each.is_input]
    known = dict(zip((each.name for each in inputs), given, strict=False)) | named
    out = known.pop("out") if "out" in named else None  # else it may be one of the arguments in order
    assert set(known) <= {each.name for each in inputs}, f"{name} takes {[each.name for each in inputs]}"
    values = [known.get(each.name, _NUMBERS.get(each.type)) for each in inputs]
    if out is None or kernel.into:
        return kernel.body(*values, **({} if out is None else {"out": out}))
    made = kernel.body(*values)  # what it returns is written for it
    write(out, made)
    return made


def by_name(name: str) -> Callable[..., Any]:
    """Return a kernel of the older kind."""
    return _NAMED[name]


def gradients(function: Callable[..., T], grad: T, *leaves: T) -> tuple[T, ...]:
    """Return the gradients of a function by torch, computed in float64."""
    wide = [each.detach().double().requires_grad_() for each in leaves]
    made = torch.autograd.grad(function(*wide), wide, grad.double(), allow_unused=True)
    pairs = zip(made, leaves, strict=True)
    return tuple(torch.zeros_like(leaf) if each is None else each.to(leaf.dtype) for each, leaf in pairs)


def close(actual: Any, expected: Any, **how: float) -> None:
    """Assert that results are close; None only where None is expected."""
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            close(one, other, **how)
    elif expected is None:
        assert actual is None
    else:
        torch.testing.assert_close(actual, expected, **({"rtol": 1e-4, "atol": 1e-5} | how))


__all__ = ["T", "by_name", "called", "close", "floats", "gradients"]
