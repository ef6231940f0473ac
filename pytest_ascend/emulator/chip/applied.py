"""How the emulated device computes: exactly as torch's CPU does, or right in another way, as a chip may.

``exact`` (what is not said otherwise) or ``chip:SEED``; ``chip`` is ``chip:0``. See :mod:`pytest_ascend.emulator.chip`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pytest_ascend.emulator.chip import Chip
from pytest_ascend.emulator.choices import EXACT, checked
from pytest_ascend.emulator.registry import Body, Kernel

#: cubeMathType: a lower precision is allowed for float32, and the one that a chip then takes.
_ALLOWED, _HF32 = 1, 3


def apply_numerics(kernels: Iterable[Kernel], text: str) -> list[Kernel]:
    """Return the kernels with these numerics. Raises UsageError as :func:`checked` does."""
    numerics = checked(text)
    if numerics == EXACT:
        return list(kernels)
    seed = int(numerics.removeprefix("chip:"))
    return [replace(each, body=_as_chip(each, seed)) for each in kernels]


def _as_chip(kernel: Kernel, seed: int) -> Body:
    honest, cube = kernel.body, _place_of_cube(kernel)

    def body(*arguments: Any, **out: Any) -> Any:
        if cube is not None and arguments[cube] == _ALLOWED:
            arguments = (*arguments[:cube], _HF32, *arguments[cube + 1 :])
        with Chip(seed):
            return honest(*arguments, **out)

    return body


def _place_of_cube(kernel: Kernel) -> int | None:
    names = [each.name for each in kernel.signature.parameters if each.is_input]
    return names.index("cube") if "cube" in names else None
