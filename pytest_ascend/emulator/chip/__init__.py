"""Numerics that are correct but differ from the CPU's: torch functions inside kernels, computed as a chip may.

A chip sums in other orders and blocks, has its own exponentials, and multiplies float32 in HF32 if allowed. All of this
is valid, and a judge that rejects it would reject a real NPU. While a kernel runs, a dispatch mode intercepts the torch
functions that it calls; the tables list them by class: :mod:`functions` (transcendental), :mod:`sums` (reductions and
functions that contain them), :mod:`products` (the cube unit's).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from pytest_ascend.emulator.chip.functions import FUNCTIONS, Call
from pytest_ascend.emulator.chip.products import PRODUCTS
from pytest_ascend.emulator.chip.sums import SUMS
from pytest_ascend.emulator.choices import EXACT, checked
from pytest_ascend.emulator.registry import Body, Kernel
from pytest_ascend.system.dispatching import EagerDispatchMode, is_composed

#: Name in torch, without the trailing underscore of in-place functions -> its replacement, called with call and seed.
_TABLE: Mapping[str, Callable[[Call, int], Any]] = {**FUNCTIONS, **SUMS, **PRODUCTS}


class Chip(EagerDispatchMode):
    """Replaces the functions in the tables; all others run unchanged."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def handle(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute ``func`` as the chip does."""
        if compute := _computes(func):
            return compute(Call(func, args, kwargs), self.seed)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)


@functools.cache
def _computes(func: torch._ops.OpOverload) -> Callable[[Call, int], Any] | None:
    name = func.overloadpacket.__name__
    if name.startswith("_foreach_"):
        return FUNCTIONS.get(name.removeprefix("_foreach_").removesuffix("_"))
    return _TABLE.get(name) or _TABLE.get(name.removesuffix("_"))


@functools.cache
def _is_composite(func: torch._ops.OpOverload) -> bool:
    """Return whether torch implements it only by other functions, which may be in the tables."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001  no public name exists
    return is_composed(func) and not has_kernel(func.name(), "CPU")  # type: ignore[no-untyped-call]


#: cubeMathType: float32 may be computed in lower precision, and the value that a chip then uses.
_ALLOWED, _HF32 = 1, 3


def apply_numerics(kernels: Iterable[Kernel], text: str) -> list[Kernel]:
    """Return the kernels with these numerics. Raises UsageError as :func:`checked` does."""
    numerics = checked(text)
    if numerics == EXACT:
        return list(kernels)
    return [replace(each, body=_as_chip(each, int(numerics.removeprefix("chip:")))) for each in kernels]


def _as_chip(kernel: Kernel, seed: int) -> Body:
    names = [each.name for each in kernel.signature.parameters if each.is_input]
    cube = names.index("cube") if "cube" in names else None

    def body(*arguments: Any, **out: Any) -> Any:
        if cube is not None and arguments[cube] == _ALLOWED:
            arguments = (*arguments[:cube], _HF32, *arguments[cube + 1 :])
        with Chip(seed):
            return kernel.body(*arguments, **out)

    return body
