"""A fault of the emulated device that can be moved from operator to operator while the process runs.

``EVERY_KERNEL`` replaces every kernel by one that is honest until its damage is switched on in ``SWITCH``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from operator_damage import OnTheWayIn, OnTheWayOut, Seen, has_same_bits

from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.emulator.registry import Body, Kernel


@dataclass(slots=True)
class Switch:
    """Which kernel is damaged, and how; what kernels were called with, and whether the damage changed a bit.

    ``seen`` grows with each call while ``records`` is set. ``effects`` counts calls with other results.
    """

    kernel: str = ""
    into: OnTheWayIn | None = None
    out: OnTheWayOut | None = None
    effects: int = 0
    records: bool = False
    called: set[str] = field(default_factory=set)
    seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))


SWITCH = Switch()


def _plant(kernel: Kernel, honest: Body) -> Body:
    places = [
        i
        for i, each in enumerate(each for each in kernel.signature.parameters if each.is_input)
        if each.role == "inout"
    ]

    def body(*arguments: Any) -> Any:
        if SWITCH.records:
            SWITCH.called.add(kernel.name)
            SWITCH.seen[kernel.name].note(_unfolded(arguments))
        if kernel.name != SWITCH.kernel:
            return honest(*arguments)
        return _damaged(partial(_apart, honest, places), arguments, places)

    return body


def _apart(honest: Body, places: Sequence[int], arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Call with copies of what is changed in place; return the results, and the copies."""
    copies = [_copied(each) if i in places else each for i, each in enumerate(arguments)]
    return honest(*copies), [copies[i] for i in places]


def _damaged(
    run: Callable[[Sequence[Any]], tuple[Any, list[Any]]], arguments: Sequence[Any], places: Sequence[int]
) -> Any:
    found, changed = run(arguments)
    wanted = [_copied(each) for each in _tensors((found, changed))]
    try:
        if SWITCH.into:
            found, changed = run(_folded(SWITCH.into(_unfolded(arguments)), arguments))
        if SWITCH.out:
            values = SWITCH.out(_unfolded(arguments), [_copied(each) for each in _tensors((found, changed))])
            for target, value in zip(_tensors((found, changed)), values, strict=True):
                target.copy_(value)
    except Exception:  # noqa: BLE001  (a damage that cannot be done to this call is none)
        found, changed = run(arguments)
    SWITCH.effects += not all(map(has_same_bits, _tensors((found, changed)), wanted))
    for place, value in zip(places, changed, strict=True):
        for target, written in zip(_tensors(arguments[place]), _tensors(value), strict=True):
            target.copy_(written)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, torch.Tensor) for each in value)


def _unfolded(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with lists of tensors laid open."""
    return [leaf for each in arguments for leaf in (each if _is_list(each) else [each])]


def _folded(flat: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    left = iter(flat)
    return [[next(left) for _ in each] if _is_list(each) else next(left) for each in like]


EVERY_KERNEL: Mapping[str, Callable[[Body], Body]] = {kernel.name: partial(_plant, kernel) for kernel in all_kernels()}
