"""Which operators the CPU computed although their tensors are on the device, and whether the device multiplied.

The dispatcher is queried, since torch_npu's own warning appears once per process and can be turned off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pytest_ascend.device.dispatcher import differentiates_inside, kind
from pytest_ascend.environment.chips import multiplies
from pytest_ascend.records.census import FALLBACK
from pytest_ascend.system.dispatching import EagerDispatchMode, with_autograd


@functools.cache
def falls_back(operator: torch._ops.OpOverload) -> bool:
    """Whether torch_npu has the CPU compute ``operator``: it has no kernel for it, and torch none for any device."""
    return kind(_name(operator)) == FALLBACK


@functools.cache
def is_product(operator: torch._ops.OpOverload) -> bool:
    """Whether ``operator`` has the chip's matrix unit multiply."""
    return multiplies(_name(operator).partition("::")[2])


@functools.cache
def is_differentiated_inside(operator: torch._ops.OpOverload) -> bool:
    """Whether the gradient of ``operator`` is that of what its kernel calls."""
    return differentiates_inside(_name(operator))


def _name(operator: torch._ops.OpOverload) -> str:
    return str(operator.name())  # type: ignore[no-untyped-call]


class FallbackWatch(EagerDispatchMode):
    """Notes operators on tensors of ``device_type`` that the CPU computes, in the order of their first call.

    ``multiplied`` becomes true with the first product of matrices there, or convolution.

    It sees what torch dispatches, not what a kernel calls inside: there it knows the ``out=`` variants only.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self.seen: dict[str, None] = {}
        self.multiplied = False

    def handle(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Note the operator, and call it as it was to be called."""
        if func.namespace == "prim":  # a query of a fake tensor, which the dispatcher does not know
            return func(*args, **kwargs)
        self._note(func, args, kwargs)
        if func is torch.ops.aten._efficientzerotensor.default:  # noqa: SLF001
            func = torch.ops.aten.zeros.default  # behind a mode, torch_npu 2.7 dies in the other
        if is_differentiated_inside(func) and self._is_on_device(args, kwargs):
            with with_autograd():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _note(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if falls_back(func) and self._is_on_device(args, kwargs):
            self.seen[_name(func)] = None
        if not self.multiplied and is_product(func):
            self.multiplied = self._is_on_device(args, kwargs)

    def _is_on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        leaves, _ = tree_flatten((args, dict(kwargs)))
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type == self.device_type for leaf in leaves)


class OperatorWatch(FallbackWatch):
    """Notes all operators on tensors of ``device_type`` too, but for those that only copy or look at them otherwise."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.called: dict[str, None] = {}

    def _note(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        is_view = torch.Tag.inplace_view in func.tags or bool(func.is_view)
        is_copy = func.overloadpacket in {torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.detach}  # noqa: SLF001
        if not is_view and not is_copy and self._is_on_device(args, kwargs):
            self.called[_name(func)] = None
        super()._note(func, args, kwargs)
