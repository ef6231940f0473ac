"""Many small tensors in few large ones: what they hold is stored once, in the smallest dtype that holds it exactly.

A file with one entry for each tensor would be mostly header. Here one flat tensor for each storage dtype holds the
elements of all, and a table says of each tensor what it is and where it begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

#: What the table says of a tensor: its dtype, the dtype of its storage, the first element there, its shape.
Row: TypeAlias = Sequence[Any]

#: Where elements of a kind may be stored: the first that holds all of them is taken.
_FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Packed:
    """Tensors by number, being collected."""

    def __init__(self) -> None:
        self.table: list[Row] = []
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._sizes: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Take a tensor in, and give its number; one that is there already keeps the number that it has."""
        flat = _flat(tensor)
        storage = _storage(flat)
        stored = flat.to(storage)
        key = (str(tensor.dtype), tuple(tensor.shape), str(storage), _bytes(stored))
        if key not in self._known:
            self._known[key] = len(self.table)
            self.table.append([_name(tensor.dtype), _name(storage), self._place(stored), list(tensor.shape)])
        return self._known[key]

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return the flat tensors, by the name of their dtype."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}

    def _place(self, stored: torch.Tensor) -> int:
        name = _name(stored.dtype)
        first = self._sizes.get(name, 0)
        self._parts.setdefault(name, []).append(stored)
        self._sizes[name] = first + stored.numel()
        return first


def unpack(arrays: Mapping[str, torch.Tensor], row: Row) -> torch.Tensor:
    """Return the tensor that a row of the table describes. Raises ValueError or KeyError where it lies outside."""
    name, storage, first, shape = row
    dtype = getattr(torch, name)
    count = math.prod(shape) * (2 if dtype.is_complex else 1)
    part = arrays[storage][first : first + count]
    if first < 0 or part.numel() != count:
        raise ValueError(f"a tensor of {count} elements lies outside of what is stored")
    if dtype.is_complex:
        real = torch.float64 if dtype is torch.complex128 else torch.float32
        # A copy: complex numbers begin at even elements only.
        return torch.view_as_complex(part.to(real, copy=True).reshape(*shape, 2))
    return part.to(dtype).reshape(shape).clone()


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)


def _storage(flat: torch.Tensor) -> torch.dtype:
    if flat.dtype is torch.bool:
        return torch.bool
    usual = _FLOATING if flat.is_floating_point() else _INTEGERS
    return next(dtype for dtype in usual if _holds(dtype, flat))


def _holds(dtype: torch.dtype, flat: torch.Tensor) -> bool:
    """Whether a dtype holds every element, the sign of zero included."""
    back = flat.to(dtype).to(flat.dtype)
    same = (back == flat) | (back.isnan() & flat.isnan())
    return bool((same & (back.signbit() == flat.signbit())).all())


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
