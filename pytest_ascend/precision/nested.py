"""Nested values: lists, tuples, mappings, dataclasses, model outputs, caches; each leaf with its path."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from pytest_ascend.system.errors import UsageError

#: Deeper structures are assumed to be recursive.
DEEPEST = 64
#: Replaces a part of a structure.
Change: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A path at which ``actual`` or ``expected`` is not a container, with the reference runs' values there.

    Where two structures differ, ``mismatch`` says how, and there are no values.
    """

    path: str
    actual: Any = None
    expected: Any = None
    reference_runs: tuple[Any, ...] = ()
    mismatch: str = ""


def leaves(whole: Leaf, depth: int = 0) -> Iterator[Leaf]:
    """Walk the structures of ``whole`` together, and yield their leaves.

    Lists and tuples (also named ones) are matched by position, mappings and dataclasses by name; a mapping matches a
    dataclass, and any sequence another. Fields that one dataclass lacks are None, as in outputs of transformers. Raises
    :class:`UsageError` for a recursive structure, and if a reference run's structure is not that of the expected value.
    """
    if depth > DEEPEST:
        raise UsageError(f"{whole.path[:80]}… is nested more than {DEEPEST} deep", hint="does this output hold itself?")
    parts, expected = children(whole.actual), children(whole.expected)
    if whole.actual is None or whole.expected is None or (parts is None and expected is None):
        for one in whole.reference_runs:
            if expected is None and children(one) is not None:
                raise UsageError(
                    f"reference_runs is {kind(one)} at {whole.path}, where expected has one value",
                    hint="several reference runs of one output go into precision.Samples(first, second, ...)",
                )
        yield whole
    elif parts is None or expected is None:
        yield Leaf(whole.path, mismatch=f"expected {kind(whole.expected)}, got {kind(whole.actual)}")
    else:
        if is_dataclass(whole.actual) and is_dataclass(whole.expected):
            every = dict.fromkeys([*expected, *parts])
            parts, expected = every | parts, every | expected
        if parts.keys() != expected.keys():
            missing = [str(key) for key in expected if key not in parts]
            surplus = [str(key) for key in parts if key not in expected]
            text = f"expected {len(expected)} parts, got {len(parts)}"
            text += f"; missing: {', '.join(missing[:8])}" if missing else ""
            text += f"; not expected: {', '.join(surplus[:8])}" if surplus else ""
            yield Leaf(whole.path, mismatch=text)
        runs, wanted = list[dict[Any, Any]](), children(whole.expected)
        for one in whole.reference_runs:
            if (its := children(one)) is None or wanted is None or its.keys() != wanted.keys():
                raise UsageError(
                    f"reference_runs does not have the structure of expected at {whole.path}: it is {kind(one)}",
                    hint="run the same function on the CPU for both; several reference runs go into precision.Samples",
                )
            runs.append(its)
        for key, value in expected.items():
            if key in parts:
                named = f"[{key!r}]" if isinstance(whole.actual, Mapping) else f".{key}"
                step = f"[{key}]" if isinstance(key, int) else named
                own = tuple(one.get(key) for one in runs)
                yield from leaves(Leaf(whole.path + step, parts[key], value, own), depth + 1)


def children(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a container by key, or None for a leaf."""
    if isinstance(value, torch.Tensor | np.ndarray | str | bytes | float | int | None):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if (is_kept := padding(value)) is not None:
        return {**dict(enumerate(value)), 0: value.data[is_kept.to(value.data.device)]}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Sequence):
        return dict(enumerate(value))
    found = {name: part for name, part in vars(value).items() if tensors_in(part)} if is_holder(value) else {}
    for name, part in found.items():
        if isinstance(part, list | tuple):  # None for objects without tensors, such as some layers of a cache
            found[name] = [None if hasattr(each, "__dict__") and not tensors_in(each) else each for each in part]
    return found or None


def padding(value: Any) -> torch.Tensor | None:
    """Return a mask of a packed sequence's rows that are not padding; None for anything else, or without padding.

    torch_npu packs sequences with their padding and does not document it; its LSTM expects the padding.
    """
    if not isinstance(value, PackedSequence):
        return None
    sizes = value.batch_sizes.cpu()
    is_kept = torch.arange(int(sizes.max()), device="cpu") < sizes[:, None]
    return is_kept.flatten() if value.data.shape[0] == is_kept.numel() != int(sizes.sum()) else None


def holds_padding(value: Any) -> bool:
    """Return whether a packed sequence in nested tuples, lists and mappings includes its padding."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return padding(value) is not None or any(map(holds_padding, parts))


def is_holder(value: Any, depth: int = 0) -> bool:
    """Return whether an object of an unknown class has tensors among its attributes, as a cache does."""
    if isinstance(value, type | torch.nn.Module) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return any(_holds_tensors(part, depth) for part in vars(value).values())


def _holds_tensors(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if depth > DEEPEST or isinstance(value, str | bytes | int | float | np.ndarray | None):
        return False
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return is_holder(value, depth + 1)
    return any(_holds_tensors(part, depth + 1) for part in (value.values() if isinstance(value, Mapping) else value))


def mapped(value: Any, apply: Change, *, into_objects: bool = True, others: Change | None = None) -> Any:
    """Return the same structure with ``apply`` called on each tensor in it.

    ``others`` is called on leaves other than tensors: devices, dtypes, modules, strings, numbers.

    ``into_objects`` copies objects of unknown classes, such as caches, with their tensors; otherwise they are passed on
    unchanged, so that their owners see what is written to them.
    """

    def again(part: Any) -> Any:
        return mapped(part, apply, into_objects=into_objects, others=others)

    if isinstance(value, torch.Tensor):
        return apply(value)
    if isinstance(value, Mapping):
        # Reconstructed, a model output has the order of its fields, in whatever order they were set.
        order = [each.name for each in fields(value) if each.name in value] if is_dataclass(value) else ()
        return _mapping(value, {key: again(value[key]) for key in dict.fromkeys([*order, *value])})
    if isinstance(value, list | tuple):
        parts = list(map(again, value))
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return _mapped_object(value, again, into_objects, others or (lambda each: each))


def _mapped_object(value: Any, again: Change, into_objects: bool, others: Change) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _with(value, {each.name: again(getattr(value, each.name)) for each in fields(value)})
    if not into_objects or isinstance(value, type | torch.nn.Module | Enum) or not hasattr(value, "__dict__"):
        return others(value)
    if is_holder(value):
        return _with(value, {name: again(part) for name, part in vars(value).items()})
    if not callable(value):  # an empty cache, which may be filled later
        with contextlib.suppress(Exception):
            return copy.deepcopy(value)
    return value


def _mapping(value: Any, parts: dict[Any, Any]) -> Any:
    """Return a mapping of the same class: model outputs are constructed from their fields, others are copied."""
    if type(value) is dict:
        return parts
    if is_dataclass(value):
        return type(value)(**parts)  # type: ignore[misc]
    made = copy.copy(value)
    for key, part in parts.items():
        made[key] = part
    return made


def _with(value: Any, parts: Mapping[str, Any]) -> Any:
    """Return a copy of an object with other attributes; its device and dtype attributes follow its tensors."""
    made = copy.copy(value)
    first = next((each for each in parts.values() if isinstance(each, torch.Tensor)), None)
    before = next((each for each in vars(value).values() if isinstance(each, torch.Tensor)), None)
    for name, part in parts.items():
        current: Any = part
        if first is not None and before is not None:
            current = first.device if isinstance(part, torch.device) else current
            current = first.dtype if isinstance(part, torch.dtype) and part is before.dtype else current
        object.__setattr__(made, name, current)
    return made


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating-point tensor as float64, a complex one as complex128, any other unchanged."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def tensors_in(value: Any, *, into_objects: bool = True) -> list[torch.Tensor]:
    """Return every tensor of a structure, in order; see :func:`mapped`."""
    found: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    mapped(value, keep, into_objects=into_objects)
    return found


def kind(value: Any) -> str:
    """Describe what kind of value this is."""
    if isinstance(value, torch.Tensor | None):
        return "None" if value is None else "a tensor"
    parts, name = children(value), type(value).__name__
    return name if parts is None else f"{name} of {len(parts)}"
