"""torch's database of operators (OpInfo): which operators it has, and where each is found.

The only module that imports ``torch.testing._internal``, and only inside a function: it needs packages (the extra
``corpus``) that are not required for running the suite.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any
from unittest import mock

import torch

from pytest_ascend.errors import AscendError
from pytest_ascend.operators.callables import resolve

from .table import FUNCTIONS, LEFT_OUT, VARIANTS_LEFT_OUT

#: Prefixes under which a database operator is looked up.
_PLACES = ("torch.", "torch.Tensor.", "torch.nn.functional.", "torch.ops.aten.", "")
#: Prefixes of database names that are dropped from the common names.
_BEFORE = ("nn.functional.", "torch.ops.aten.", "torch.")


def opinfo(name: str) -> Any:
    """Import a module of ``torch.testing._internal``. Raise AscendError if it cannot be imported."""
    try:
        # These modules freeze the flags of torch.backends, which other code in this process still sets.
        with mock.patch.object(torch.backends.m, "disable_global_flags", int):
            return importlib.import_module(f"torch.testing._internal.{name}")
    except ImportError as error:
        hint = "pip install 'pytest-ascend[corpus]'"
        raise AscendError(f"torch's database of operators cannot be read: {error}", hint=hint) from error


@functools.cache
def database() -> dict[str, tuple[Any, ...]]:
    """Return all variants of each operator, by its name here. Raise AscendError if they cannot be imported."""
    known = opinfo("common_methods_invocations")
    found: dict[str, list[Any]] = {}
    lists = (f"foreach_{kind}_op_db" for kind in ("unary", "binary", "pointwise", "reduce", "other"))
    for info in itertools.chain(known.op_db, *(getattr(known, name) for name in lists)):
        if (info.name, info.variant_test_name) not in VARIANTS_LEFT_OUT:
            found.setdefault(short(info.name), []).append(info)
    return {name: tuple(infos) for name, infos in sorted(found.items()) if name not in LEFT_OUT}


def short(name: str) -> str:
    """Return the operator name that users know."""
    for prefix in _BEFORE:
        name = name.removeprefix(prefix)
    return name.removesuffix(".default")


def function_name(info: Any) -> str:
    """Return an operator's public path for :func:`resolve`. Raise LookupError if it has no public name."""
    if short(info.name) in FUNCTIONS:
        return FUNCTIONS[short(info.name)]
    for place in _PLACES:
        name = f"{place}{info.name}"
        if name.startswith("torch.") and _is(name, info.op):
            return name
    raise LookupError(f"{info.name}: its function has no public name")


def in_place_name(info: Any) -> str:
    """Return the public path of the in-place variant, or "" if there is none."""
    variant = info.inplace_variant
    names = (f"torch.Tensor.{short(info.name)}_", f"torch.{short(info.name)}_")
    return next((name for name in names if variant is not None and _is(name, variant)), "")


def _is(name: str, function: Any) -> bool:
    found = resolve(name)
    return not isinstance(found, functools.partial) and (found is function or found == function)


@functools.cache
def definitions() -> dict[str, Any]:
    """Return torch's own definitions in terms of simpler operators, by the database's name."""
    known = opinfo("common_methods_invocations")
    return {short(info.torch_opinfo_name): info.op for info in known.python_ref_db}
