"""The operators of the emulated CANN, the rows of ``kernels/operators.txt``, and how a row becomes a kernel.

A row is ``declaration = expression``, below the ``[module]`` of its family, and continues in indented lines. Its
expression may use the names of the declaration's parameters, of torch, and of that module:

- ``given`` is all inputs in order: ``aclnnFlip(Tensor self, IntArray dims, out Tensor out) = torch.flip(*given)``.
- ``out`` is the output, or a tuple of several, which the expression then fills itself.
- An expression without any input is a function that takes them in order: ``= torch.flip`` is equivalent.
- ``function(**given)`` passes the inputs that the function has parameters for. A tensor, list or array for any other
  raises NotImplementedError; other numbers and texts are ignored: most set a chip's speed or precision. With
  ``function(**given, out=out)`` it fills the outputs itself, with ``function(**given)[0]`` they are its first result.

Further names are defined after the expression, step by step: ``where gate, value = x.chunk(2, -1)``. An expression may
call the operators of its module by their names.

Operators that CANN has only on an Ascend 950 are below ``[module, on an Ascend 950]``, and other chips reject them.
Below ``[module, by name]`` are operators of the older API: ``name = function``, or ``name(parameters) = expression``;
below ``[module, by name in float32]`` those that compute half precision in float32.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.registry import Body, Family, T, aten, gap, gradients, is_missing, refuse
from pytest_ascend.emulator.signature import CONTAINERS, Parameter, parse

#: The names that expressions have everywhere.
COMMON = {each.__name__: each for each in (math, torch, gap, gradients, is_950, refuse)} | {"aten": aten, "T": T}


@functools.cache
def sections() -> dict[str, list[tuple[str, str]]]:
    """Return the rows of each section: pairs of declaration and expression. Raises ValueError for any other line."""
    text = (Path(__file__).parent / "kernels" / "operators.txt").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for line in re.sub(r"\n +", " ", text).splitlines():
        if line.startswith("["):
            rows = found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            row = re.fullmatch(r"(\w+(?:\([^()]*\))?) = (.+)", line)
            if not row:
                raise ValueError(f"operators.txt: expected 'declaration = expression', got {line!r}")
            rows.append((row[1], row[2]))
    return found


def family_of(name: str, module: ModuleType) -> Family:
    """Return the family of a section's rows, whose expressions use names of torch and of a module."""
    family, names = Family(name), {**COMMON, **vars(module)}
    for heading, is_of_950 in ((f"{name}, on an Ascend 950", True), (name, False)):
        for declaration, expression in sections().get(heading, ()):
            add(family, declaration, expression, names, is_of_950=is_of_950)
    for heading, wide in ((f"{name}, by name", False), (f"{name}, by name in float32", True)):
        for declaration, expression in sections().get(heading, ()):
            operator, several, parameters = declaration.removesuffix(")").partition("(")
            how = _function(parameters, expression, names) if several else _evaluated(expression, names)
            names[operator] = how
            family.named(operator, how, wide=wide)
    return family


#: Names in an expression outside of strings: no attributes, no keywords. Parsing takes a hundred times as long.
_READ = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|=[^=])")


def add(family: Family, declaration: str, expression: str, names: dict[str, Any], *, is_of_950: bool = False) -> None:
    """Declare an operator by a row; ``names`` are those of the family's module."""
    name, parameters = (signature := parse(declaration)).name, signature.parameters
    inputs = [each for each in parameters if each.is_input]
    read = set(_READ.findall(re.sub('"[^"]*"', "", expression)))
    into = "out" in read and all(each.name != "out" for each in inputs)
    if some := re.fullmatch(r"(.+)\(\*\*given(, out=out)?\)(\[0\])?", expression):
        body = _of_some(inputs, _evaluated(some[1], names), takes_first=bool(some[3]))
    elif read.isdisjoint({"given", "out", *(each.name for each in inputs)}):
        body = _evaluated(expression, names)
    else:
        head = ["*given"] if "given" in read else [*(each.name for each in inputs), *["*"] * into]
        body = _function(", ".join([*head, *["out"] * into]), expression, names)
    names[name] = body  # for rows that call it
    family.op(declaration, functools.partial(only_on_950, name, body) if is_of_950 else body, into=into)


def only_on_950(name: str, body: Body, /, *given: Any, **out: Any) -> Any:
    """Call an operator's body; other chips reject it: CANN's pages list only the Ascend 950."""
    refuse(not is_950(), f"{name} is not supported on this chip.")
    return body(*given, **out)


def _of_some(inputs: Sequence[Parameter], function: Body, *, takes_first: bool) -> Body:
    known = set(inspect.signature(function).parameters)

    def body(*given: Any, **out: Any) -> Any:
        for each, value in zip(inputs, given, strict=True):
            if each.name not in known and each.type in CONTAINERS and value is not None and value != []:
                raise NotImplementedError(f"{each.name} is not implemented")
        named = {each.name: value for each, value in zip(inputs, given, strict=True) if each.name in known}
        made = function(**named, **out)
        return made[0] if takes_first else made

    return body


def _function(parameters: str, expression: str, names: dict[str, Any]) -> Body:
    """Return the expression as a function, or the operator that it needs and the installed torch lacks."""
    for name in re.findall(r"\baten(?:\.\w+)+", expression):
        if is_missing(found := _evaluated(name, names)):
            return found
    result, *steps = expression.split(" where ")
    made: dict[str, Body] = {}
    exec("\n ".join([f"def body({parameters}):", *steps, f"return {result}"]), names, made)  # noqa: S102  a part of the package
    return made["body"]


def _evaluated(expression: str, names: dict[str, Any]) -> Any:
    return eval(expression, names)  # noqa: S307  a part of the package
