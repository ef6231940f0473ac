"""Read an msprobe dump of a run: each API call with its arguments and results, as untrusted input.

The format is msprobe's own, ``dump_path/step*/rank*/{dump.json, dump_tensor_data/*.pt}``, level L1 or mix
(Ascend/msprobe, docs/en/dump/pytorch_data_dump_instruct.md). Tensors are read by torch's restricted unpickler, which
builds tensors and nothing else.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pytest_ascend.run import allowed
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import read_regular, strict_json
from pytest_ascend.system.programs import memory_limited

DUMP = "dump.json"
DUMP_LIMIT_BYTES = 512 * 2**20
TENSOR_LIMIT_BYTES = 8 * 2**30

_CALL = re.compile(r"(?P<function>[A-Za-z]\w*(?:\.\w+)+)\.(?P<index>\d+)\.(?P<direction>forward|backward)")


class Unreadable(ValueError):
    """A value that is not in the dump, or cannot be rebuilt."""


@dataclass(frozen=True, slots=True)
class Call:
    """One API call: ``name`` is msprobe's (``Functional.relu.0``), ``function`` without the number of the call.

    ``forward`` and ``backward`` are the entries of the dump, empty if it has none.
    """

    name: str
    function: str
    forward: Mapping[str, Any] = field(default_factory=dict)
    backward: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank of one step. ``calls`` are in call order; ``path`` is its dump.json."""

    path: Path
    calls: tuple[Call, ...]
    other: int

    def value(self, entry: Any) -> Any:
        """Rebuild a value of tensors, numbers, strings, dtypes, slices, lists and mappings. Raises Unreadable."""
        if entry is None or isinstance(entry, (bool, int, float, str)):
            return entry
        if isinstance(entry, list):
            return [self.value(each) for each in entry]
        if not isinstance(entry, Mapping):
            raise Unreadable(f"a value of type {type(entry).__name__}")
        typed = "type" in entry
        return self._typed(entry) if typed else {str(key): self.value(each) for key, each in entry.items()}

    def _typed(self, entry: Mapping[str, Any]) -> Any:
        kind, value = str(entry["type"]), entry.get("value", entry.get("Max"))
        if kind.endswith(("Tensor", "Parameter")):
            return self.tensor(entry)
        if kind in _NUMBERS and isinstance(value, (bool, int, float, str)):
            return _NUMBERS[kind](value)
        if kind == "slice" and isinstance(value, list) and len(value) == 3:
            return slice(*value)
        if kind in {"torch.Size", "tuple", "list"} and isinstance(value, list):
            return tuple(self.value(each) for each in value)
        if kind == "torch.dtype" and isinstance(found := getattr(torch, str(value)[6:], None), torch.dtype):
            return found
        if kind not in _CONSTANTS:
            raise Unreadable(f"a value of type {kind[:40]}")
        return _CONSTANTS[kind]

    def tensor(self, entry: Mapping[str, Any]) -> torch.Tensor:
        """Read one tensor onto the CPU. Raises Unreadable if there are only statistics, or the file is bad."""
        path = self._file(entry)
        if path is None:
            raise Unreadable("only statistics of a tensor (dump with task 'tensor')")
        name = path.name
        try:
            data = read_regular(path, TENSOR_LIMIT_BYTES)
            with memory_limited(allowed.memory_bytes(len(data))):
                loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except OSError as error:
            raise Unreadable(f"{name}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001 - whatever the unpickler raises for a file that torch did not write
            raise Unreadable(f"{name} is damaged or holds more than a tensor: {type(error).__name__}") from None
        if not isinstance(loaded, torch.Tensor):
            raise Unreadable(f"{name} holds no tensor")
        if loaded.numel() * loaded.element_size() > allowed.memory_bytes(len(data)):
            raise Unreadable(f"{name} has {loaded.numel():,} elements in {len(data):,} bytes")
        return loaded.detach().requires_grad_(entry.get("requires_grad") is True and loaded.is_floating_point())

    def bytes(self, entry: Any) -> int:
        """Return the size of the files of all tensors in a part of a call."""
        found = (self._file(each) for each in tensors_of(entry))
        return sum(path.stat().st_size for path in found if path is not None and path.is_file())

    def _file(self, entry: Mapping[str, Any]) -> Path | None:
        """Return the file of a tensor, which is in the dump's own folder; None if it has none."""
        name = entry.get("data_name")
        if not isinstance(name, str) or not name.endswith(".pt") or name != Path(name).name or "\0" in name:
            return None
        return self.path.parent / "dump_tensor_data" / name


_NUMBERS: Mapping[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "complex": complex}
_CONSTANTS: Mapping[str, Any] = {"NoneType": None, "None": None, "ellipsis": ...}


def find_dumps(path: Path) -> list[Path]:
    """Return every dump.json of a path: the file itself, or in the folder of a rank, a step, or a whole run.

    Raises UsageError if there is none.
    """
    if path.name == DUMP:
        return [path]
    # A process without a rank dumps into "proc" and its number.
    for pattern in (DUMP, f"*/{DUMP}", f"*/*/{DUMP}"):
        if found := sorted(path.glob(pattern)):
            return found
    message = f"{path}: there is no {DUMP} in it, its ranks or its steps"
    raise UsageError(message, hint="name the folder that msprobe wrote into")


def read_dump(path: Path) -> Dump:
    """Read one dump.json. Raises UsageError for anything that msprobe did not write."""
    try:
        content = strict_json(read_regular(path, DUMP_LIMIT_BYTES), constants=True)
        data = content["data"] if isinstance(content, Mapping) else None
        why = "" if isinstance(data, Mapping) else "it has no 'data'"
    except (OSError, ValueError, KeyError) as error:
        said = (error.strerror or str(error)) if isinstance(error, OSError) else ""
        why = said or f"{type(error).__name__}: {str(error)[:200]}"
    if why or data is None:
        hint = "name the dump.json that msprobe wrote, level L1 or mix"
        raise UsageError(f"{path} is not an msprobe dump: {why}", hint=hint)
    entries: dict[str, dict[str, Any]] = {}
    other = 0
    for name, entry in data.items():
        found = _CALL.fullmatch(name)
        if found is None or name.startswith("Module.") or not isinstance(entry, Mapping):
            other += 1
            continue
        call = entries.setdefault(f"{found['function']}.{found['index']}", {"function": found["function"]})
        call[found["direction"]] = entry
    return Dump(path, tuple(Call(name, **fields) for name, fields in entries.items()), other)


def tensors_of(entry: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of all tensors in a part of a call, in order."""
    if isinstance(entry, Mapping) and str(entry.get("type", "")).endswith(("Tensor", "Parameter")):
        yield entry
    elif isinstance(entry, Mapping | Sequence) and not isinstance(entry, str):
        for each in entry.values() if isinstance(entry, Mapping) else entry:
            yield from tensors_of(each)


def statistics(entry: Mapping[str, Any]) -> tuple[float, ...]:
    """Return what msprobe says of a tensor, NaN for what it does not say; for a comparison without values."""
    found = (entry.get(name) for name in ("Max", "Min", "Mean", "Norm"))
    return tuple(float(each) if isinstance(each, (int, float)) else math.nan for each in found)
