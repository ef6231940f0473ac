"""Honest float16 on a CPU that has no instructions for it: products in float32, rounded once.

That is what a matrix unit does, which takes half precision and adds up in float32, and ten times as fast as the CPU's
own way, which is honest too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pytest_ascend.dispatching import EagerDispatchMode

#: Products, by the number of results that are in half precision; others, as attention's logarithms, are not. By name:
#: a torch before 2.2 has no attention of this kind.
PRODUCTS: Mapping[str, int] = {
    "aten.mm": 1,
    "aten.addmm": 1,
    "aten.bmm": 1,
    "aten.baddbmm": 1,
    "aten.convolution": 1,
    "aten.convolution_backward": 3,
    "aten._scaled_dot_product_flash_attention_for_cpu": 1,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": 3,
}


class products_in_float32(EagerDispatchMode):  # type: ignore[no-untyped-call]  # noqa: N801 - as torch.no_grad
    """Within this context the CPU computes products of float16 in float32, and rounds them once."""

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute one operator."""
        kwargs = kwargs or {}
        short = PRODUCTS.get(str(getattr(function, "overloadpacket", "")))
        if short is None or not any(_is_half(each) for each in args):
            return function(*args, **kwargs)
        found = function(*tree_map(_wide, args), **tree_map(_wide, dict(kwargs)))
        if isinstance(found, Tensor):
            return found.half()
        return tuple(each.half() if place < short and each is not None else each for place, each in enumerate(found))


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float16 and value.device.type == "cpu"


def _wide(value: Any) -> Any:
    return value.float() if _is_half(value) else value
