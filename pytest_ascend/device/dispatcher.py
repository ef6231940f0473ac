"""What computes an operator on an NPU, from torch's dispatcher, and watches that note what the CPU computed.

The dispatcher is queried because torch_npu's own warning appears once per process and can be turned off. This module
uses non-public parts of torch, and is the only one that does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from pytest_ascend.environment.chips import multiplies
from pytest_ascend.records.census import EXPLICIT, FALLBACK, IMPLICIT, MISSING, NATIVE, NONFUNCTIONAL, OTHER_LAYOUT
from pytest_ascend.system.dispatching import EagerDispatchMode, tensors_in, with_autograd

#: The dispatch key of torch_npu's kernels.
OWN = "PrivateUse1"
#: torch's kernels for any device, in the dispatcher's order, for operators without a kernel of the device.
COMPOSITES = (
    ("CompositeExplicitAutogradNonFunctional", NONFUNCTIONAL),
    ("CompositeExplicitAutograd", EXPLICIT),
    ("CompositeImplicitAutograd", IMPLICIT),
)
#: Keys of torch_npu's kernels for tensors that are not strided, if this torch has them (2.1 has no CSR).
LAYOUTS = ("SparsePrivateUse1", "SparseCsrPrivateUse1", "QuantizedPrivateUse1")


def names(namespaces: Iterable[str]) -> list[str]:
    """Return every operator with its overload, such as "aten::add.Tensor", of some namespaces, sorted."""
    starts = tuple(f"{each}::" for each in namespaces)
    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(starts))  # noqa: SLF001


def has_kernel(name: str, key: str) -> bool:
    """Return whether ``name``, such as "aten::add.Tensor", has a kernel of its own under a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))  # noqa: SLF001


@functools.cache
def differentiates_inside(name: str) -> bool:
    """Return whether torch_npu replaces a composite operator by a kernel, whose inner calls give the gradients.

    torch_npu 2.1 has many such kernels, e.g. for softmax and flatten.
    """
    is_replaced = has_kernel(name, "CompositeImplicitAutograd") and has_kernel(name, OWN)
    return is_replaced and not has_kernel(name, "Autograd") and not has_kernel(name, f"Autograd{OWN}")


@functools.cache
def is_key(name: str) -> bool:
    """Return whether this version of torch has a dispatch key of this name."""
    try:
        has_kernel("aten::add.Tensor", name)
    except RuntimeError:  # could not parse dispatch key
        return False
    return True


def arrives(name: str, key: str) -> bool:
    """Return whether a call under a dispatch key reaches any kernel, including one shared by many operators."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key))  # noqa: SLF001


@functools.cache
def kind(name: str) -> str:
    """Return how an operator, such as "aten::add.Tensor", runs on strided NPU tensors: one of KINDS.

    A kernel under AutogradPrivateUse1 alone does not count as torch_npu's own: it records what the gradient needs, and
    leaves the computation to whatever else there is.
    """
    if has_kernel(name, OWN):
        return NATIVE
    composite = next((each for key, each in COMPOSITES if has_kernel(name, key)), "")
    if composite == NONFUNCTIONAL:
        # Look through an operator whose kernel only calls its variant with ``out=``, which may fall back.
        delegate = _out_variant(name)
        found = kind(delegate) if delegate else ""
        return found if found in (FALLBACK, OTHER_LAYOUT, MISSING) else NONFUNCTIONAL
    if composite:
        return composite
    # torch_npu's fallback handles whatever has no kernel.
    if arrives(name, OWN) and arrives(name, "CPU"):
        return FALLBACK
    return OTHER_LAYOUT if any(has_kernel(name, key) for key in filter(is_key, LAYOUTS)) else MISSING


def _out_variant(name: str) -> str:
    """Return the name of the ``out`` variant: for "aten::neg_" it is "aten::neg.out"; "" for none."""
    schemas = torch._C._jit_get_schemas_for_operator  # noqa: SLF001
    packet, _, overload = name.partition(".")
    own = next(each for each in schemas(packet) if each.overload_name == overload)
    for each in schemas(packet.removesuffix("_")):
        if any(argument.is_out for argument in each.arguments) and _types(each) == _types(own):
            return f"{each.name}.{each.overload_name}"
    return ""


def _types(schema: Any) -> list[str]:
    return [str(argument.type) for argument in schema.arguments if not argument.is_out]


def _name(operator: torch._ops.OpOverload) -> str:
    return str(operator.name())  # type: ignore[no-untyped-call]


_EFFICIENT_ZEROS = torch.ops.aten._efficientzerotensor.default  # noqa: SLF001


@functools.cache
def _is_plain(func: torch._ops.OpOverload) -> bool:
    """Return whether a watch has nothing to do for an operator, as for most: this is asked in each call."""
    if func.namespace == "prim":  # a query of a fake tensor, unknown to the dispatcher
        return True
    name = _name(func)
    return (
        func is not _EFFICIENT_ZEROS
        and kind(name) != FALLBACK
        and not multiplies(name.partition("::")[2])
        and not differentiates_inside(name)
    )


class FallbackWatch(EagerDispatchMode):
    """Notes operators on tensors of ``device_type`` that the CPU computes, in the order of their first call.

    ``multiplied`` becomes true with the first matrix product or convolution there.

    It sees what torch dispatches, not what a kernel calls inside, except for ``out=`` variants.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self.seen: dict[str, None] = {}
        self.multiplied = False

    def handle(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Note the operator, and call it unchanged."""
        if _is_plain(func):
            return func(*args, **kwargs)
        if func is _EFFICIENT_ZEROS:
            func = torch.ops.aten.zeros.default  # within a mode, torch_npu 2.7 crashes otherwise
        name = _name(func)
        if self._is_on_device(args, kwargs):
            if kind(name) == FALLBACK:
                self.seen[name] = None
            self.multiplied = self.multiplied or multiplies(name.partition("::")[2])
            if differentiates_inside(name):
                with with_autograd():
                    return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _is_on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return any(each.device.type == self.device_type for each in tensors_in((args, dict(kwargs))))


class OperatorWatch(FallbackWatch):
    """Notes all operators on tensors of ``device_type``, except those that only copy or reinterpret them."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.called: dict[str, None] = {}

    def handle(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Note the operator, and call it unchanged."""
        is_view = torch.Tag.inplace_view in func.tags or bool(func.is_view)
        is_copy = func.overloadpacket in {torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.detach}  # noqa: SLF001
        if not is_view and not is_copy and func.namespace != "prim" and self._is_on_device(args, kwargs):
            self.called[_name(func)] = None
        return super().handle(func, args, kwargs)
