"""Operators of the older kind, called by name: what C keeps of such a call, and how a kernel is run on it.

``words``: name, count and address of inputs, count and address of outputs, count and address of attributes, as
``runtime/aclop.c`` passes them. A kernel takes inputs by position, attributes by name, and gives what belongs into the
outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pytest_ascend.emulator.registry import Kernel
from pytest_ascend.emulator.tensors import DTYPES, DeviceMemory, write

#: In the place of an operator's index.
BY_NAME = -1

_UNDEFINED = -1
_COUNTED = ctypes.c_int64 * 2
_ATTRIBUTE = ctypes.c_int64 * 4  # address of the name, kind, count, address of the items


def name_of(words: int) -> str:
    """Return the name of the operator that is called."""
    return ctypes.string_at(ctypes.c_int64.from_address(words).value).decode()


def call_of(kernel: Kernel, memory: DeviceMemory) -> Callable[[int], None]:
    """Return the function that reads the words at an address and runs the kernel on them."""

    def call(words: int) -> None:
        _, n, inputs, m, outputs, count, attributes = (ctypes.c_int64 * 7).from_address(words)[:]
        made = kernel.body(
            *(_tensor(each, memory) for each in _items(inputs, n)), **dict(_attributes(attributes, count))
        )
        targets = [_tensor(each, memory) for each in _items(outputs, m)]
        for target, value in zip(targets, made if isinstance(made, tuple) else (made,), strict=True):
            if target is not None and value is not None and target.numel() == value.numel() == 1:
                value = value.reshape(target.shape)  # noqa: PLW2901  a scalar may be one element of any shape
            write(target, value)

    return call


def _items(address: int, count: int) -> list[int]:
    return (ctypes.c_int64 * count).from_address(address)[:] if count else []


def _tensor(descriptor: int, memory: DeviceMemory) -> torch.Tensor | None:
    """Return a tensor of the device, or of the host, where torch_npu keeps small ones that say how to compute."""
    if not descriptor:
        return None
    code, ndim, _, data = _items(descriptor, 4)
    if code == _UNDEFINED:
        return None
    if not data or memory.holds(data):
        return memory.tensor(descriptor)
    shape, dtype = torch.Size(_items(descriptor + 40, ndim)), DTYPES[code]
    buffer = (ctypes.c_char * (shape.numel() * dtype.itemsize)).from_address(data)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _attributes(address: int, count: int) -> Iterator[tuple[str, Any]]:
    for place in range(count):
        name, kind, size, items = _ATTRIBUTE.from_address(address + 32 * place)[:]
        yield ctypes.string_at(name).decode(), _KINDS[kind](items, size)


def _lists(address: int, count: int) -> list[list[int]]:
    pairs = (_COUNTED.from_address(address + 16 * place) for place in range(count))
    return [_items(items, size) for size, items in pairs]


def _reals(address: int, count: int) -> list[float]:
    return (ctypes.c_double * count).from_address(address)[:] if count else []


#: In the order of the kinds in aclop.c: a flag, an integer, a real number, a text, a dtype, and lists of them.
_KINDS: tuple[Callable[[int, int], Any], ...] = (
    lambda address, count: bool(_items(address, count)[0]),
    lambda address, count: _items(address, count)[0],
    lambda address, count: _reals(address, count)[0],
    lambda address, _: ctypes.string_at(address).decode(),
    lambda address, count: DTYPES.get(_items(address, count)[0]),
    lambda address, count: [bool(each) for each in _items(address, count)],
    _items,
    _reals,
    _lists,
)
