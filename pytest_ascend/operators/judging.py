"""What an operator's definition says of a call, and how far honest devices may be from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_flatten, tree_map

from pytest_ascend.operators.draw import Call
from pytest_ascend.operators.operator import Operator
from pytest_ascend.run import inputs

Tensors: TypeAlias = list[torch.Tensor | None]


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested structure, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def on_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """Return the structure with each tensor changed; what asked for a gradient asks for it still."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return change(leaf.detach()).requires_grad_(leaf.requires_grad)

    return tree_map(changed, tree)


def forward(operator: Operator, function: Callable[..., Any], call: Call) -> Tensors:
    """Call, and give the outputs that are compared, detached."""
    return [each.detach() for each in _outputs(operator, function(*call.args, **call.kwargs))]


def backward(operator: Operator, function: Callable[..., Any], call: Call, above: Sequence[torch.Tensor]) -> Tensors:
    """Call and go back: the gradient for each input that asks for one, None where the result does not depend on it.

    ``above`` is what comes from above, one for each of the first floating outputs, of any dtype and layout.
    """
    given = tensors((call.args, dict(call.kwargs)))
    wanted = [each for each in given if each.requires_grad]
    outputs = [each for each in _outputs(operator, function(*call.args, **call.kwargs)) if each.is_floating_point()]
    pairs = [(out, from_above) for out, from_above in zip(outputs, above, strict=False) if out.requires_grad]
    if not pairs:
        return [None for _ in wanted]
    attached, from_above = zip(*((out, up.to(out.device, out.dtype)) for out, up in pairs), strict=True)
    return list(torch.autograd.grad(attached, wanted, from_above, allow_unused=True))


def _outputs(operator: Operator, found: Any) -> list[torch.Tensor]:
    outputs = tensors(found)
    return outputs[: len(operator.outputs)] if operator.outputs else outputs


def in_float64(call: Call) -> Call:
    """Return the call with its floating tensors in float64."""
    return _in(call, torch.float64)


def _in(call: Call, dtype: torch.dtype) -> Call:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype, copy=True) if tensor.is_floating_point() else tensor.clone()

    args, kwargs = on_tensors(cast, (call.args, dict(call.kwargs)))
    return Call(call.name, args, kwargs)


def dtypes_of(operator: Operator, expected: Tensors, dtype: torch.dtype) -> list[torch.dtype]:
    """Return the dtype that each output has to have."""
    said = [getattr(torch, each) if each else dtype for each in operator.outputs]
    return said or [each.dtype if each is not None and not each.is_floating_point() else dtype for each in expected]


def honest(
    compute: Callable[[Call], Tensors], call: Call, expected: Tensors, dtypes: Sequence[torch.dtype]
) -> list[Tensors]:
    """Return what honest devices may make of a call: rounded at the end only, or after each step of the definition."""
    found = [_cast(expected, dtypes), _cast(compute(_in(call, torch.float32)), dtypes)]
    with contextlib.suppress(RuntimeError):  # the CPU lacks a step of the definition in a 16-bit dtype
        found.append(_cast(compute(call), dtypes))
    return found


def _cast(found: Tensors, dtypes: Sequence[torch.dtype]) -> Tensors:
    return [each if each is None else each.to(dtype) for each, dtype in zip(found, dtypes, strict=True)]


def shaken(expected: torch.Tensor | None, rounded: torch.Tensor | None, ulps: float) -> torch.Tensor | None:
    """Return what a device may give that is wrong by ``ulps`` in each element, up or down as chance has it."""
    if expected is None or rounded is None or not rounded.is_floating_point() or not rounded.numel():
        return rounded
    info = torch.finfo(rounded.dtype)
    exponent = torch.frexp(expected.abs().clamp(info.smallest_normal, info.max)).exponent.double() - 1
    direction = inputs.signs("operators/shaken", rounded.numel()).reshape(expected.shape)
    moved = (expected + direction * ulps * torch.exp2(exponent) * info.eps).to(rounded.dtype)
    return torch.where(moved.isfinite() & rounded.isfinite(), moved, rounded)
