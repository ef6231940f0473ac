"""Which operators were recorded, and what is tested of each: from a file written when the goldens are built."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators.operator import BOOL, FLOATS, INTS
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import write_if_new

PATH = folder("suites") / "ops" / "recorded.json"
#: Dtypes, in order of the number of their cases.
_ORDER = (*FLOATS, "float64", "complex64", *INTS, *BOOL)
#: The prefix of the goldens' ids.
PREFIX = "ops/opinfo/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A recorded operator.

    ``function`` is its name ("torch.linalg.det"); ``in_place`` that of the variant that changes its first argument, ""
    if there is none. ``properties`` are the tested properties of each dtype. ``exactness`` is that of
    :class:`Operator`.
    """

    name: str
    function: str
    family: str
    exactness: str
    properties: Mapping[str, tuple[str, ...]]
    in_place: str = ""

    @property
    def golden_id(self) -> str:
        """The id of its golden."""
        return PREFIX + self.name

    @property
    def first_dtype(self) -> str:
        """The dtype of properties that are tested in one dtype."""
        return min(self.properties, key=_ORDER.index)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """Return the entry in a file's row. Raises KeyError or TypeError if a field is missing or unknown."""
        properties = {dtype: tuple(names) for dtype, names in data["properties"].items()}
        return cls(**{**data, "properties": properties})


def load(path: Path = PATH) -> dict[str, Entry]:
    """Return all entries, by name. Raises UsageError if the file is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {each["name"]: Entry.from_dict(each) for each in data}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "reinstall pytest-ascend; in a checkout: pytest-ascend baseline build ops/opinfo"
        raise UsageError(f"the list of recorded operators cannot be read: {path}: {error}", hint=hint) from error


def save(entries: Iterable[Entry], path: Path = PATH) -> None:
    """Write the file: one operator per line, sorted, so that diffs are small."""
    ordered = sorted(entries, key=lambda each: each.name)
    lines = ",\n".join(json.dumps(asdict(each), sort_keys=True) for each in ordered)
    write_if_new(path, f"[\n{lines}\n]\n".encode())


#: A tensor in the table: its dtype, the dtype of its storage, its first element there, its shape.
Row: TypeAlias = Sequence[Any]

#: Storage dtypes of each kind: the first that holds all elements is used.
_FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Packed:
    """Collects tensors by number."""

    def __init__(self) -> None:
        self.table: list[Row] = []
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._sizes: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Add a tensor, and return its number; one that is already there keeps its number."""
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
        usual = (torch.bool,) if flat.dtype is torch.bool else _FLOATING if flat.is_floating_point() else _INTEGERS
        storage = next(each for each in usual if same_bits(flat.to(each).to(flat.dtype), flat))
        stored = flat.to(storage)
        key = (
            str(tensor.dtype),
            tuple(tensor.shape),
            str(storage),
            (stored.view(torch.uint8).numpy().tobytes() if stored.numel() else b""),
        )
        if key not in self._known:
            self._known[key] = len(self.table)
            name = _name(stored.dtype)
            first = self._sizes.get(name, 0)
            self._parts.setdefault(name, []).append(stored)
            self._sizes[name] = first + stored.numel()
            self.table.append([_name(tensor.dtype), _name(storage), first, list(tensor.shape)])
        return self._known[key]

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return the flat tensors, by the names of their dtypes."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}


def unpack(arrays: Mapping[str, torch.Tensor], row: Row) -> torch.Tensor:
    """Return the tensor of a row of the table. Raises ValueError or KeyError if it lies outside."""
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


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same, signs of zeros and of NaN included."""
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    same = (one == other) | (one.isnan() & other.isnan())
    return bool((same & (one.signbit() == other.signbit())).all())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
