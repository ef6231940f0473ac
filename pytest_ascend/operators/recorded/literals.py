"""Arguments of a call as JSON, and back: numbers, texts, dtypes, slices, structures of them, and tensors by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators.values import StoredTensor

#: Writes a tensor, and reads what was written for it.
Write: TypeAlias = Callable[[StoredTensor], Any]
Read: TypeAlias = Callable[[Any], Any]

#: The device that is tested, in place of the one that a sample was made on.
DEVICE = torch.device("cpu")

#: torch's own values, by the key that tells them apart in JSON.
_NAMED: Mapping[str, type] = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}


class Unwritable(ValueError):
    """An argument that JSON cannot say: a generator, a function, a module."""


def write(value: Any, tensor: Write) -> Any:
    """Return ``value`` as JSON knows it; ``tensor`` writes tensors. Raises Unwritable."""
    if isinstance(value, StoredTensor):
        return {"tensor": tensor(value)}
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [write(value.real, tensor), write(value.imag, tensor)]}
    return _write_structure(value, tensor)


def _write_structure(value: Any, tensor: Write) -> Any:
    if isinstance(value, list):
        return [write(each, tensor) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [write(each, tensor) for each in value]}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if isinstance(value, EllipsisType):
        return {"ellipsis": True}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: write(each, tensor) for key, each in value.items()}}
    return _write_named(value)


def _write_named(value: Any) -> Any:
    if isinstance(value, torch.device):
        return {"device": True}
    for key, kind in _NAMED.items():
        if isinstance(value, kind):
            return {key: str(value).removeprefix("torch.")}
    raise Unwritable(f"{type(value).__name__} cannot be written down")


def read(data: Any, tensor: Read) -> Any:
    """Return what :func:`write` was given; ``tensor`` reads tensors. Raises ValueError on anything else."""
    if isinstance(data, list):
        return [read(each, tensor) for each in data]
    if not isinstance(data, dict):
        return data
    ((key, held),) = data.items()
    if key in _NAMED:
        found = getattr(torch, held)
        if not isinstance(found, _NAMED[key]):
            raise ValueError(f"{held!r} is no {key}")
        return found
    return _READERS[key](held, tensor)


def _complex(held: Any, tensor: Read) -> complex:
    real, imaginary = (read(each, tensor) for each in held)
    return complex(real, imaginary)


_READERS: Mapping[str, Callable[[Any, Read], Any]] = {
    "tensor": lambda held, tensor: tensor(held),
    "float": lambda held, _: float(held),
    "complex": _complex,
    "tuple": lambda held, tensor: tuple(read(each, tensor) for each in held),
    "slice": lambda held, _: slice(*held),
    "ellipsis": lambda *_: ...,
    "dict": lambda held, tensor: {key: read(each, tensor) for key, each in held.items()},
    "device": lambda *_: DEVICE,
}
