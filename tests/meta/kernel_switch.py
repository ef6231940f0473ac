"""A fault of the emulated device that can be moved from kernel to kernel while the process runs.

``EVERY_KERNEL`` replaces every kernel by one that is correct until its fault is switched on in ``SWITCH``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.emulator.registry import Body, Kernel
from tests.meta.kernel_faults import Condition, Effect, Seen


@dataclass(slots=True)
class Switch:
    """Which kernel is wrong, how and when; what kernels were called, and with what.

    ``seen`` grows with each call while ``records`` is set. ``effects`` counts calls with other results. ``different``
    holds the different calls of each kernel, where it is set.
    """

    kernel: str = ""
    effect: Effect | None = None
    condition: Condition | None = None
    effects: int = 0
    records: bool = False
    called: set[str] = field(default_factory=set)
    seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    different: dict[str, set[tuple[object, ...]]] | None = None

    def plant(self, kernel: str, effect: Effect, condition: Condition) -> None:
        """Make a kernel wrong, and no other."""
        self.kernel, self.effect, self.condition, self.effects = kernel, effect, condition, 0

    def clear(self) -> None:
        """Make all kernels right."""
        self.kernel, self.effect, self.condition = "", None, None


SWITCH = Switch()


def _plant(kernel: Kernel, correct: Body) -> Body:
    places = [
        i
        for i, each in enumerate(each for each in kernel.signature.parameters if each.is_input)
        if each.role == "inout"
    ]

    def body(*arguments: Any) -> Any:
        SWITCH.called.add(kernel.name)
        if SWITCH.different is not None:
            SWITCH.different[kernel.name].add(tuple(map(_form, _unfolded(arguments))))
        if SWITCH.records:
            found = correct(*arguments)
            SWITCH.seen[kernel.name].note(_unfolded(arguments), _tensors((found, [arguments[i] for i in places])))
            return found
        if kernel.name != SWITCH.kernel:
            return correct(*arguments)
        return _wrong(correct, arguments, places)

    return body


def _wrong(correct: Body, arguments: Sequence[Any], places: Sequence[int]) -> Any:
    assert SWITCH.effect is not None
    assert SWITCH.condition is not None
    flat = _unfolded(arguments)
    is_hit = SWITCH.condition(flat)
    if not is_hit:
        return correct(*arguments)
    # The kernel runs on copies of what it changes: an effect may look at what was there before.
    copies = [_copied(each) if i in places else each for i, each in enumerate(arguments)]
    found = _writable(correct(*copies))
    results = _tensors((found, [copies[i] for i in places]))

    def run(given: Sequence[Any]) -> list[torch.Tensor]:
        again = [_copied(each) if i in places else each for i, each in enumerate(_folded(given, arguments))]
        return _tensors((correct(*again), [again[i] for i in places]))

    try:
        wrong = SWITCH.effect(run, flat, [each.clone() for each in results])
        # With other sizes than were asked for, CANN refuses: this call cannot have the effect.
        if [each.shape for each in wrong] == [each.shape for each in results]:
            SWITCH.effects += not all(map(has_same_bits, results, wrong))
            for target, value in zip(results, wrong, strict=True):
                target.copy_(value)
    except Exception:  # noqa: BLE001, S110  (an effect that this call cannot have is none)
        pass
    for place in places:
        for target, written in zip(_tensors(arguments[place]), _tensors(copies[place]), strict=True):
            target.copy_(written)
    return found


def has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same in every bit; all NaN are one."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    left, right = (each.contiguous().reshape(-1) for each in (one, other))
    if left.view(torch.uint8).equal(right.view(torch.uint8)):
        return True
    return left.isnan().equal(right.isnan()) and left.nan_to_num(nan=0.0).equal(right.nan_to_num(nan=0.0))


def _form(value: Any) -> object:
    """Return what of an argument makes a call another one: of a tensor, its sizes, strides and dtype."""
    return (*value.shape, *value.stride(), value.dtype) if isinstance(value, torch.Tensor) else repr(value)


def _writable(value: Any) -> Any:
    """Return a kernel's results with expanded tensors in memory of their own: they could not be changed."""
    if isinstance(value, tuple | list):
        return type(value)(map(_writable, value))
    return _copied(value) if isinstance(value, torch.Tensor) and 0 in value.stride() else value


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
