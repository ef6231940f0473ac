"""A call of a function of torch, with its arguments by name, and how to make it with others."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

T = torch.Tensor


@functools.cache
def _parameters(func: torch._ops.OpOverload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all parameters, and of those that the function writes into."""
    parameters = func._schema.arguments  # noqa: SLF001  no public name exists
    written = (each.name for each in parameters if each.alias_info is not None and each.alias_info.is_write)
    return tuple(each.name for each in parameters), tuple(written)


class Call:
    """``func(*args, **kwargs)``, to be looked at, changed and made."""

    def __init__(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.func = func
        self.names, self.written = _parameters(func)
        self.positional = self.names[: len(args)]
        self.arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, ``default`` where it was not given."""
        return self.arguments.get(name, default)

    def make(self, changed: Mapping[str, Any] | None = None) -> Any:
        """Make the call, with some of the arguments that were given changed."""
        changed = changed or {}
        arguments = {name: changed.get(name, value) for name, value in self.arguments.items()}
        rest = {name: value for name, value in arguments.items() if name not in self.positional}
        return self.func(*(arguments[name] for name in self.positional), **rest)

    def targets(self) -> list[Any]:
        """Return what the caller wants written: the outputs of ``out=``, or the operand of what is in place."""
        return [self.arguments[name] for name in self.written]

    def give(self, made: T) -> T:
        """Return a result of one tensor to the caller: as it is, or written where it wants it."""
        for target in self.targets():
            return target.copy_(made)  # type: ignore[no-any-return]
        return made


def floating(value: Any) -> Iterator[T]:
    """Yield the tensors of floating or complex dtype in a result."""
    for leaf in tree_flatten(value)[0]:
        if isinstance(leaf, T) and (leaf.is_floating_point() or leaf.is_complex()):
            yield leaf
