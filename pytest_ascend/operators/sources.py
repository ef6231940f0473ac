"""A function as Python that needs only torch: its name there, or its source with everything it refers to."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch

#: Modules in which torch's functions are looked up by identity, in this order.
_PUBLIC = (
    "torch",
    "torch.nn.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.Tensor",
    "torch.masked",
    "torch.signal.windows",
)


#: Python's name of a function without a name.
LAMBDA = "<lambda>"


class Unwritable(ValueError):
    """Something that a few lines of Python cannot express: a closure, a module with weights, a tensor too large."""


@dataclass(slots=True)
class Source:
    """Collects Python code: ``imports`` and ``definitions``, each by the name that it defines."""

    imports: dict[str, None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def function(self, function: Callable[..., Any]) -> str:
        """Return the expression of a function, and add what it needs. Raises Unwritable."""
        if isinstance(function, functools.partial):
            given = [self.value(each) for each in function.args]
            given += [f"{key}={self.value(each)}" for key, each in function.keywords.items()]
            self.imports["import functools"] = None
            return f"functools.partial({', '.join([self.function(function.func), *given])})"
        if name := _public_name(function):
            return name
        module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
        if module.partition(".")[0] == "torch" and name.isidentifier():
            self.imports[f"import {module}"] = None
            return f"{module}.{name}"
        if isinstance(function, FunctionType) and not function.__closure__:
            if name.isidentifier():
                self._define(name, function)
                return name
            if function.__name__ == LAMBDA:
                return self._lambda(function)
        raise Unwritable(f"{name or function!r} is no function of torch, nor of a module")

    def value(self, value: Any) -> str:
        """Return the expression of a plain value or a function. Raises Unwritable."""
        if value is None or isinstance(value, bool | int | str | torch.dtype | torch.memory_format | torch.layout):
            return repr(value)
        if isinstance(value, float | complex):
            return number(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.value(key)}: {self.value(each)}' for key, each in value.items())}}}"
        if callable(value):
            return self.function(value)
        raise Unwritable(f"{type(value).__name__} cannot be written down")

    def _define(self, name: str, function: FunctionType) -> None:
        if name in self.definitions:
            return
        self.definitions[name] = ""  # a recursive function is already being defined
        text = textwrap.dedent(inspect.getsource(function))
        (definition,) = ast.parse(text).body
        if not isinstance(definition, ast.FunctionDef):
            raise Unwritable(f"{name} is no function of its own")
        self._refer_to_all(function, definition.args, [*definition.body, *definition.decorator_list])
        self.definitions[name] = self.definitions.pop(name) or text.rstrip()

    def _lambda(self, function: FunctionType) -> str:
        found = _lambda_of(function)
        self._refer_to_all(function, found.args, [found.body])
        return f"({ast.unparse(found)})"

    def _refer_to_all(self, function: FunctionType, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        """Add the global names that a function reads, except in annotations."""
        defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        read = (each.id for part in (*body, *defaults) for each in ast.walk(part) if isinstance(each, ast.Name))
        for name in read:
            if name in function.__globals__ and name != function.__name__:
                self._refer(name, function.__globals__[name])

    def _refer(self, name: str, value: Any) -> None:
        """Bind a global name."""
        if isinstance(value, ModuleType):
            same = value.__name__ == name
            self.imports[f"import {value.__name__}" + ("" if same else f" as {name}")] = None
        elif isinstance(value, FunctionType) and value.__name__ == name and not _public_name(value):
            self.function(value)
        elif value is not torch.Tensor or name != "torch":
            text = "torch.Tensor" if value is torch.Tensor else self.value(value)
            self.definitions[name] = f"{name} = {text}"


def number(value: complex) -> str:
    """Return a number as Python source: infinities and NaN have no literal."""
    if isinstance(value, complex):
        return f"complex({number(value.real)}, {number(value.imag)})"
    text = repr(value)
    return text if text[-1].isdigit() else f'float("{text}")'


@functools.cache
def _public_names() -> Mapping[int, str]:
    """Return the public names of torch's functions by identity; these are never garbage-collected."""
    found: dict[int, str] = {}
    for where in _PUBLIC:
        holder = functools.reduce(getattr, where.split(".")[1:], torch)
        for name, each in vars(holder).items():
            if callable(each) and not isinstance(each, type):
                found.setdefault(id(each), f"{where}.{name}")
    return found


def _public_name(function: Any) -> str:
    """Return the name of a torch function, "" for any other."""
    if isinstance(function, torch._ops.OpOverloadPacket | torch._ops.OpOverload):  # noqa: SLF001
        return f"torch.ops.{function}"
    found = _public_names().get(id(function), "")
    if found or not getattr(function, "__name__", "").isidentifier():
        return found
    # Methods of a base class of Tensor are not in its own dictionary.
    name = str(function.__name__)
    return f"torch.Tensor.{name}" if getattr(torch.Tensor, name, None) is function else ""


def _lambda_of(function: FunctionType) -> ast.Lambda:
    """Return a lambda from its file, by its line and arguments. Raises Unwritable if two match."""
    code = function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [
        each
        for each in _lambdas(code.co_filename)
        if each.lineno == code.co_firstlineno
        and tuple(arg.arg for arg in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)) == named
    ]
    if len(found) != 1:
        raise Unwritable(f"{len(found)} lambdas of these arguments stand in line {code.co_firstlineno}")
    return found[0]


@functools.cache
def _lambdas(file: str) -> tuple[ast.Lambda, ...]:
    text = "".join(linecache.getlines(file))
    return tuple(each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Lambda))
