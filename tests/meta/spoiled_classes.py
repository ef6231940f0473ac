"""Faults of the classes of defect that other tables show only once, to be planted all together.

Kernels are replaced by ``--ascend-emulate=fault=tests.meta.spoiled_classes:SPOILED``. Dtypes and strides of results are
no kernel's doing but torch_npu's: as a plugin of pytest (``-p tests.meta.spoiled_classes``), this replaces some of its
operators in torch's own table, before the first test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.faults import Fault, _given, _in_eleven_bits, _in_half, instead

T = torch.Tensor
_kept: list[Any] = []


def _by_first_element(x: T) -> T:
    """Take the first element for all, where the tensor has to be broadcast."""
    return x.reshape(-1)[:1].expand(x.shape) if x.dim() and 1 in x.shape and x.numel() > 1 else x


def _step_away() -> Callable[..., Any]:
    """The first element of every second call is a step away."""
    calls: list[None] = []

    def wrong(correct: Callable[..., Any], *arguments: Any) -> Any:
        found = correct(*arguments)
        calls.append(None)
        target = arguments[0] if found is None else found
        if len(calls) % 2:
            first = target[(0,) * target.dim()]
            first.copy_(torch.nextafter(first, torch.full_like(first, 9)))
        return found

    return wrong


SPOILED: Fault = {
    "aclnnConvolution": _given(_in_eleven_bits, 0, 1),
    "aclnnAddmm": _given(_in_half),
    "aclnnAdd": _given(_by_first_element),
    "aclnnMul": _given(_by_first_element),
    "aclnnTanhBackward": instead(_step_away()),
    "aclnnInplaceExp2": instead(_step_away()),
}


def _argmax(x: T, dim: int | None = None, keepdim: bool = False) -> T:
    places = torch.max(x.reshape(-1) if dim is None else x, 0 if dim is None else dim, keepdim)[1]
    return places.int()


def _equal(x: T, y: T) -> T:
    return torch.eq(x, y, out=torch.empty(0, dtype=torch.bool, device=x.device)).to(torch.uint8)


def _clone(x: T, *, memory_format: torch.memory_format | None = None) -> T:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def _permute(x: T, dims: list[int]) -> T:
    moved = x.as_strided([x.shape[each] for each in dims], [x.stride(each) for each in dims], x.storage_offset())
    return _clone(moved)


#: What torch_npu's operator is replaced by.
ABOVE: Mapping[str, Callable[..., Any]] = {
    "argmax": _argmax,
    "eq.Tensor": _equal,
    "clone": _clone,
    "permute": _permute,
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Replace them once, in the process that runs the test."""
    if not _kept:
        library = torch.library.Library("aten", "IMPL")
        _kept.append(library)
        for name, wrong in ABOVE.items():
            library.impl(name, wrong, "PrivateUse1", allow_override=True)
