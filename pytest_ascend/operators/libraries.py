"""Framework libraries that register their own operators: how to load each, and what it registers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pytest_ascend.operators.operator import Operator
from pytest_ascend.system import bundled
from pytest_ascend.system.errors import UsageError, as_error, choice, with_type
from pytest_ascend.system.text import one_line


@dataclass(frozen=True, slots=True)
class Library:
    """``module`` registers operators as ``torch.ops.NAMESPACE`` on import; ``prepare`` is called first."""

    module: str
    namespace: str
    prepare: str = ""


#: Sources: vllm-ascend@182b75ea84ff, vllm_ascend/utils.py (2026-08-22); sgl-kernel-npu@f425bdf1e191,
#: python/sgl_kernel_npu/sgl_kernel_npu/__init__.py (2026-08-21).
LIBRARIES: Mapping[str, Library] = {
    "vllm_ascend._C": Library("vllm_ascend.vllm_ascend_C", "_C_ascend", "vllm_ascend.utils:enable_custom_op"),
    "sgl_kernel_npu": Library("sgl_kernel_npu", "npu"),
}
#: The library loaded in this run, with the names it registered; loading registers them for the whole process.
_LOADED: dict[str, frozenset[str]] = {}


def load(name: str) -> None:
    """Load the library that ``--ascend-library`` names. Raises UsageError if it is unknown or not installed."""
    if name not in LIBRARIES:
        raise UsageError(f"--ascend-library={name[:80]}: no such library is known", hint=choice(name, LIBRARIES))
    library, before = LIBRARIES[name], _registered()
    message = f"--ascend-library={name}: {library.module} cannot be imported"
    hint = "install it in this Python, built for this CANN and this torch_npu"
    with as_error(message, hint, Exception, why=lambda error: one_line(with_type(error))[:300]):
        module, _, function = library.prepare.partition(":")
        if module:
            getattr(importlib.import_module(module), function)()
        importlib.import_module(library.module)
    if name not in _LOADED:
        _LOADED[name] = _registered() - before
    if not operators(name):
        raise UsageError(
            f"--ascend-library={name}: no operator in torch.ops.{library.namespace} has a definition here",
            hint="docs/custom-operators.md lists those that have; others can be tested as your own operators",
        )


def _registered() -> frozenset[str]:
    """Return the names of all operators of this process, as ``namespace.name``."""
    names = torch._C._dispatch_get_all_op_names()  # noqa: SLF001
    return frozenset(each.partition(".")[0].replace("::", ".") for each in names)


def operators(name: str = "") -> tuple[Operator, ...]:
    """Return a library's registered operators that have a definition; by default those of the loaded library."""
    prefixes = tuple(f"{LIBRARIES[each].namespace}." for each in ([name] if name else _LOADED))
    there = {each for each in _registered() if each.startswith(prefixes)}
    return tuple(each for each in bundled.module("suites.fused.contracts").OPERATORS if each.name in there)


def operator(library: str, name: str) -> Operator:
    """Load a library and return one of its operators, for the program that reproduces a failed case."""
    load(library)
    return next(each for each in operators(library) if each.name == name)


def origin(name: str) -> tuple[tuple[str, ...], str]:
    """Return the import and the expression with which a program obtains an operator of the loaded library."""
    library = next(iter(_LOADED))
    return ("from pytest_ascend.operators import libraries",), f"libraries.operator({library!r}, {name!r})"


def header() -> list[str]:
    """Return a line for the session header: how many operators of the loaded library are tested."""
    return [
        f"library: {name}: {len(operators(name))} operators are judged; "
        f"{len(new.difference(each.name for each in operators(name)))} others have no definition here"
        for name, new in _LOADED.items()
    ]
