"""Which operators the CPU computed although their tensors are on the device."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

#: An operator with a kernel under one of these is either computed on the device, or made of operators that are seen
#: in their turn. Without any, torch_npu's fallback for its whole backend copies to the CPU and back.
OWN_KERNELS = (
    "PrivateUse1",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)


@functools.cache
def falls_back(operator: str) -> bool:
    """Whether torch has no kernel of the device's own for ``operator``, such as "aten::relu".

    Asks the dispatcher, as torch_npu's warning comes once a process and can be turned off.
    """
    return not any(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key) for key in OWN_KERNELS)  # noqa: SLF001


class FallbackWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators on tensors of ``device_type`` that the CPU computes, in the order of their first call."""

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device_type = device_type
        self.seen: dict[str, None] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator as it was to be called."""
        kwargs = kwargs or {}
        name = func.name()
        if name not in self.seen and falls_back(name) and self._is_on_device(args, kwargs):
            self.seen[name] = None
        return func(*args, **kwargs)

    def _is_on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        leaves, _ = tree_flatten((args, dict(kwargs)))
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type == self.device_type for leaf in leaves)
