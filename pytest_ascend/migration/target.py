"""A model as users name it: ``package.module:factory`` with inputs beside it, or a folder of transformers."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import operator
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from pytest_ascend.migration import pretrained
from pytest_ascend.precision.reference import initialise
from pytest_ascend.system.errors import UsageError

#: Shapes instead of a function: "8x3x224x224", "8x128:int64:32000" (values below 32000), several with commas.
_SIZE = r"\d{1,18}"
_SHAPE = re.compile(
    rf"(?P<shape>{_SIZE}(?:x{_SIZE}){{0,63}})(?::(?P<dtype>[a-z]+\d*)(?::(?P<below>{_SIZE}))?)?", re.ASCII
)

#: Maximum number of elements of one input: 4 GiB of float32.
MOST_ELEMENTS = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetModel:
    """A model and its inputs. ``name`` is the user's text."""

    name: str
    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """Return the length of the first dimension of the first tensor that has one; 1 without any."""
        leaves, _ = tree_flatten((self.args, dict(self.kwargs)))
        return next((len(each) for each in leaves if isinstance(each, Tensor) and each.dim()), 1)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments and keywords with each tensor replaced."""
        args, kwargs = tree_map_only(Tensor, change, (self.args, dict(self.kwargs)))
        return args, kwargs


def resolve(name: str, what: str) -> Any:
    """Import ``package.module:attribute``, also from the current folder. Raises UsageError naming ``what`` it is."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        hint = "write package.module:function, or a folder with a config.json"
        with contextlib.suppress(OSError, ValueError):  # not a path, or too long for one
            if Path(name).is_dir():
                hint = f"it has no config.json: write package.module:function; its code alone: --source {name}"
        raise UsageError(f"{what} {name!r} does not name a factory", hint=hint)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # importing a user's module may raise anything
        said = "" if isinstance(error, ImportError | AttributeError | ValueError) else f"{type(error).__name__}: "
        hint = f"see that 'python -c \"import {module}\"' works here, and that {attribute} is in it"
        raise UsageError(f"{what} {name!r} cannot be imported: {said}{error}", hint=hint) from error


def refuse_unusable(name: str, inputs: str = "") -> None:
    """Raise UsageError for an invalid model or inputs, as far as that can be decided without building them."""
    if pretrained.is_folder(name):
        pretrained.refuse_unusable(name)
    elif callable(factory := resolve(name, "model")) and not isinstance(factory, nn.Module):
        _refuse_parameters(factory, name)
    if inputs and (_is_shapes(inputs) or ":" not in inputs):
        list(_parsed(inputs))
    elif inputs:
        resolve(inputs, "inputs")


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _refuse_parameters(factory: Callable[..., Any], name: str) -> None:
    kinds = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    needed = [each.name for each in _parameters(factory) if each.default is each.empty and each.kind in kinds]
    if needed:
        hint = "write a function without parameters that makes the model, and name that"
        raise UsageError(f"{name} needs {', '.join(needed)}, and a factory is called without arguments", hint=hint)


def target_model(factory: Any, inputs: Any = "", batch: int | None = None) -> TargetModel:
    """Build the model of a factory or its name with the ``inputs``, which may be a name or shapes, for a ``batch``.

    The factory returns an ``nn.Module``, or a module and its inputs; a class and a module are accepted too. A folder of
    transformers gives its model. Raises UsageError.
    """
    name = name_of(factory)
    given: Any
    if isinstance(factory, str) and pretrained.is_folder(factory):
        model, given = pretrained.made(factory)
    else:
        model, given = made(resolve(factory, "model") if isinstance(factory, str) else factory, name)
    if not isinstance(inputs, str | None):
        given = inputs
    elif inputs and _is_shapes(inputs):
        generator = torch.Generator().manual_seed(0)
        given = tuple(
            torch.randn(shape, generator=generator).to(dtype)
            if dtype.is_floating_point or dtype.is_complex
            else torch.randint(below, shape, generator=generator).to(dtype)
            for shape, dtype, below in _parsed(inputs)
        )
    elif inputs:
        given = resolve(inputs, "inputs")
    if given is None:
        hint = "name a function or shapes, as in my.module:inputs or 8x3x224x224; or have the factory give both"
        raise UsageError(f"{name} has no inputs", hint=hint)
    args, kwargs = called_with(given, batch)
    initialise(model, args, kwargs)
    return TargetModel(name=name, model=model, args=args, kwargs=kwargs)


def name_of(factory: Any) -> str:
    """Return the name of a factory, or of a class or module used as one."""
    if isinstance(factory, str):
        return factory
    return f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', type(factory).__name__)}"


def made(factory: Any, name: str) -> tuple[nn.Module, Any]:
    """Return the module that a factory returns, and its inputs or None. Raises UsageError for anything else."""
    seed()
    result = factory
    if callable(factory) and not isinstance(factory, nn.Module):
        _refuse_parameters(factory, name)
        result = factory()
    model, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, nn.Module):
        hint = "let the function return a module, or a module and its inputs"
        raise UsageError(f"{name} gives {type(model).__name__}, not a torch.nn.Module", hint=hint)
    return model, inputs


def seed() -> None:
    """Seed every generator that a factory may draw from: weights and inputs are the same in each run and process."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def called_with(given: Any, batch: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments and keywords from user inputs: a tensor, a tuple, a mapping, or a function that returns these.

    A function with a parameter gets the batch size; other inputs are repeated along the first dimension.
    """
    seed()
    takes_batch = callable(given) and any(each.kind in _POSITIONAL for each in _parameters(given))
    value = (given(batch) if takes_batch and batch else given()) if callable(given) else given
    if isinstance(value, Mapping):
        args, kwargs = (), dict(value)
    else:
        args, kwargs = tuple(value) if isinstance(value, tuple | list) else (value,), {}
    if batch and not takes_batch:
        args, kwargs = rebatched(args, kwargs, batch)
    return args, kwargs


def rebatched(args: tuple[Any, ...], kwargs: Mapping[str, Any], batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the same arguments with another batch: tensors as long as the first one are repeated, or cut."""
    given = TargetModel(name="", model=nn.Identity(), args=args, kwargs=kwargs)
    before = given.batch
    if not before:
        raise UsageError("the first input is empty, and cannot be repeated", hint="give inputs of at least one sample")

    def change(value: Tensor) -> Tensor:
        if not value.dim() or len(value) != before:
            return value
        if type(value) is Tensor and value.device.type == "cpu":
            _refuse_large(batch * value[0].numel(), f"a batch of {batch}")
        return value[torch.arange(batch, device=value.device) % before]

    return given.mapped(change)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function that has a signature; none for others."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _is_shapes(text: str) -> bool:
    return all(_SHAPE.fullmatch(part.strip()) for part in text.split(","))


def _parsed(text: str) -> Iterator[tuple[list[int], torch.dtype, int]]:
    """Yield shapes, dtypes and exclusive upper bounds of integers. Raises UsageError."""
    for part in map(str.strip, text.split(",")):
        match = _SHAPE.fullmatch(part)
        dtype = getattr(torch, (match and match["dtype"]) or "float32", None)
        if match is None or not isinstance(dtype, torch.dtype):
            hint = "write 8x3x224x224 or 8x128:int64:32000"
            raise UsageError(f"{part!r} is not a shape with a torch dtype", hint=hint)
        shape = [int(size) for size in match["shape"].split("x")]
        _refuse_large(math.prod(shape), part)
        # By default, integers are below 2: a valid index of almost any embedding.
        yield shape, dtype, int(match["below"] or 2)


def _refuse_large(elements: int, what: str) -> None:
    if elements > MOST_ELEMENTS:
        raise UsageError(f"{what} has more than {MOST_ELEMENTS:,} elements", hint="give smaller inputs")


def floating(output: Any) -> dict[str, Tensor]:
    """Return the floating tensors of a model's output by name: tensors, tuples, mappings, classes of transformers.

    Raises UsageError for an output without any.
    """
    found = {name: each for name, each in _named("output", output) if each.is_floating_point()}
    if not found:
        hint = "give a model that computes one"
        raise UsageError(f"the model gives {type(output).__name__} without a floating tensor", hint=hint)
    return found


def _named(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", range(len(value)))
        parts = ((f"[{key}]", each) for key, each in zip(names, value, strict=True))
    elif isinstance(value, Mapping) or (hasattr(value, "__dict__") and not callable(value)):
        parts = ((f".{key}", each) for key, each in (value if isinstance(value, Mapping) else vars(value)).items())
    for part, each in parts:
        yield from _named(name + part, each)
