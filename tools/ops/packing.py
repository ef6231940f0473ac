"""Writing goldens of operators: as few tensors as possible, each in the smallest dtype that holds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from msgspec import to_builtins

from pytest_ascend.operators.reference import REFERENCE_RUN, Results, tensor_name
from pytest_ascend.operators.replay import PATH, Entry, Row
from pytest_ascend.operators.samples import Sample
from pytest_ascend.precision.nested import widened
from pytest_ascend.system.files import write_if_new

#: Storage dtypes of each kind: the first that holds all elements is used.
_FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Packed:
    """A numbered collection of tensors."""

    def __init__(self) -> None:
        self.table: list[Row] = []
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._sizes: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Add a tensor and return its number; a tensor that is already stored keeps its number."""
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
        usual = (torch.bool,) if flat.dtype is torch.bool else _FLOATING if flat.is_floating_point() else _INTEGERS
        storage = next(each for each in usual if same_bits(flat.to(each).to(flat.dtype), flat))
        stored = flat.to(storage)
        bits = stored.view(torch.uint8).numpy().tobytes() if stored.numel() else b""
        key = (tensor.dtype, tensor.shape, storage, bits)
        if key not in self._known:
            self._known[key] = len(self.table)
            name = str(stored.dtype).removeprefix("torch.")
            first = self._sizes.get(name, 0)
            self._parts.setdefault(name, []).append(stored)
            self._sizes[name] = first + stored.numel()
            self.table.append([str(tensor.dtype).removeprefix("torch."), name, first, list(tensor.shape)])
        return self._known[key]

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return the flat tensors by the names of their dtypes."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one dtype and shape are identical, including signs of zeros and NaN."""
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    same = (one == other) | (one.isnan() & other.isnan())
    return bool((same & (one.signbit() == other.signbit())).all())


def save(entries: Iterable[Entry], path: Path = PATH) -> None:
    """Write the list of recorded operators: one operator per line, sorted, so that diffs are small."""
    ordered = sorted(entries, key=lambda each: each.name)
    lines = ",\n".join(json.dumps(to_builtins(each), sort_keys=True) for each in ordered)
    write_if_new(path, f"[\n{lines}\n]\n".encode())


#: A shape that no result has.
NO_ELEMENTS = (0, 0, 0, 0, 0)


def named(dtype: str, part: str, sample: Sample, results: Results) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield names and tensors to store, as few as possible. Raise ValueError if only some exist."""
    for position, (expected, *reference_runs) in enumerate(zip(results.expected, *results.reference_runs, strict=True)):
        name = tensor_name(dtype, part, sample, position)
        existing = [each for each in reference_runs if each is not None]
        if expected is not None and len(existing) == len(reference_runs):
            # What can be derived is left out: if the dtype holds the expected result, only that is stored in the dtype;
            # a reference run equal to the rounded expected result is stored without elements, for its dtype.
            usual, *others = existing
            exact = same(expected, widened(usual))
            yield name, usual if exact else expected
            different = [
                (suffix, each) for suffix, each in zip(REFERENCE_RUN[1:], others, strict=True) if not same(each, usual)
            ]
            if not exact:
                rounded = same(expected.to(usual.dtype), usual)
                yield name + REFERENCE_RUN[0], usual.new_empty(*NO_ELEMENTS) if rounded else usual
            yield from ((name + suffix, each) for suffix, each in different)
        elif expected is not None or existing:
            raise ValueError(f"{name}: only some of the results exist")


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal, including the sign of zero."""
    if one.dtype != other.dtype or not torch.equal(one.isnan(), other.isnan()):
        return False
    kept = ~one.isnan()
    return torch.equal(one[kept], other[kept]) and torch.equal(one[kept].signbit(), other[kept].signbit())
