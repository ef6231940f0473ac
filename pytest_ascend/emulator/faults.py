"""Planted faults: kernels of the emulated device replaced by wrong ones, to show that a suite notices.

A fault maps names of operators to functions that make a wrong body from the honest one::

    STALE_ADD = {"aclnnAdd": lambda honest: lambda self, other, alpha: honest(self, other, alpha) * 1.001}

It is chosen by the name of a built-in one (see :mod:`pytest_ascend.emulator.planted`), or as ``module:attribute`` of
the user's own. Faults of the device as a whole, such as ``crash:after=100``, are in
:mod:`pytest_ascend.emulator.sickness`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pytest_ascend.emulator.collective_faults import PREFIX, check, is_of_collectives
from pytest_ascend.emulator.planted import FAULTS, Fault
from pytest_ascend.emulator.registry import Body, Kernel
from pytest_ascend.emulator.sickness import KINDS, infect, is_sickness
from pytest_ascend.errors import UsageError


def find_fault(name: str) -> Fault:
    """Return a built-in fault by its name, or a user's by ``module:attribute``. Raises UsageError for others."""
    if name in FAULTS:
        return FAULTS[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        raise UsageError(
            f"there is no fault {name!r} for the emulated device",
            hint=f"choose one of {', '.join(sorted({*FAULTS, *KINDS}))}, {PREFIX}NAME, or your own as module:attribute",
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module is the user's: importing it may raise anything
        message = f"the fault {name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise UsageError(message, hint="is its module on PYTHONPATH, and does it import?") from error
    if not isinstance(found, Mapping):
        raise UsageError(
            f"the fault {name!r} is a {type(found).__name__}",
            hint="expected a mapping from an operator's name (aclnnAdd) to a function that takes the honest body",
        )
    return found


def apply_faults(kernels: Iterable[Kernel], names: Iterable[str]) -> list[Kernel]:
    """Return the kernels with the named faults planted. Raises UsageError for an operator that is not emulated."""
    by_name = {kernel.name: kernel for kernel in kernels}
    for name in names:
        if is_of_collectives(name):
            check(name)  # the library of collectives plants it
            continue
        by_name = infect(by_name, name) if is_sickness(name) else _with_wrong_bodies(by_name, name)
    return list(by_name.values())


def _with_wrong_bodies(kernels: Mapping[str, Kernel], name: str) -> dict[str, Kernel]:
    found = dict(kernels)
    for operator, plant in find_fault(name).items():
        if operator not in found:
            raise UsageError(
                f"the fault {name!r} replaces {operator}, which is not emulated", hint="check the operator's name"
            )
        found[operator] = replace(found[operator], body=_planted(found[operator], plant))
    return found


def _planted(kernel: Kernel, plant: Callable[[Body], Body]) -> Body:
    """Return the wrong body. Faults only ever see bodies that return: one that writes into its output is wrapped."""
    if not kernel.into:
        return plant(kernel.body)

    def body(*arguments: Any, out: Any) -> None:
        several = isinstance(out, tuple)
        targets = out if several else (out,)

        def honest(*given: Any) -> Any:
            results = tuple(target.clone() for target in targets)
            kernel.body(*given, out=results if several else results[0])
            return results if several else results[0]

        values = plant(honest)(*arguments)
        for target, value in zip(targets, values if several else (values,), strict=True):
            target.copy_(value)

    return body
