"""Which operators the CPU computed although their tensors are on the device.

The dispatcher is asked, as torch_npu's own warning comes once a process, and can be turned off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

#: An operator with a kernel under one of these is computed on the device, or made of others that are.
OWN_KERNELS = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
#: The kernel of an operator that only calls its own variant with ``out=``.
DELEGATING = "CompositeExplicitAutogradNonFunctional"


def has_kernel(operator: str, key: str) -> bool:
    """Whether ``operator``, such as "aten::add.Tensor", has a kernel of its own under a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))  # noqa: SLF001  (no public way to ask)


@functools.cache
def falls_back(operator: torch._ops.OpOverload) -> bool:
    """Whether torch_npu hands ``operator`` to the CPU: no kernel of its own, and none of torch's for any device."""
    name = _name(operator)
    if any(has_kernel(name, key) for key in OWN_KERNELS):
        return False
    if has_kernel(name, DELEGATING):
        delegate = _out_variant(operator)
        return delegate is not None and falls_back(delegate)
    return True


def _out_variant(operator: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """Give the operator that computes the same into ``out``: for ``aten::neg_`` it is ``aten::neg.out``."""
    namespace, _, name = operator._schema.name.partition("::")  # noqa: SLF001
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    overloads = [getattr(packet, each) for each in packet.overloads()] if packet is not None else []
    wanted = _types(operator)
    return next((each for each in overloads if _writes_out(each) and _types(each) == wanted), None)


def _name(operator: torch._ops.OpOverload) -> str:
    return str(operator.name())  # type: ignore[no-untyped-call]


def _types(operator: torch._ops.OpOverload) -> list[str]:
    return [str(argument.type) for argument in operator._schema.arguments if not argument.is_out]  # noqa: SLF001


def _writes_out(operator: torch._ops.OpOverload) -> bool:
    return any(argument.is_out for argument in operator._schema.arguments)  # noqa: SLF001


class FallbackWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators on tensors of ``device_type`` that the CPU computes, in the order of their first call.

    It sees what torch dispatches, not what a kernel calls inside: there it knows the ``out=`` variants only.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device_type = device_type
        self.seen: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, which takes seconds, just to keep it away from this class."""
        return False

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator as it was to be called."""
        kwargs = kwargs or {}
        if falls_back(func) and self._is_on_device(args, kwargs):
            self.seen[_name(func)] = None
        return func(*args, **kwargs)

    def _is_on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        leaves, _ = tree_flatten((args, dict(kwargs)))
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type == self.device_type for leaf in leaves)
