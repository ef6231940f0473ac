"""How operators are declared: a family, a signature, a body."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_ascend.emulator.signature import CONTAINERS, Parameter, Signature, parse

Body = Callable[..., Any]
_B = TypeVar("_B", bound=Body)


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator and what computes it.

    ``body`` takes the inputs in order (``in`` and ``inout``) and gives what belongs into the outputs, in order; for an
    operator without outputs it changes its ``inout`` arguments. With ``into``, the body also takes ``out=`` and writes
    there itself, which saves a copy.
    """

    signature: Signature
    body: Body
    into: bool
    family: str

    @property
    def name(self) -> str:
        """The operator's name in CANN."""
        return self.signature.name


class Family:
    """Operators that belong together, in one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Kernel] = []
        self.by_name: list[Kernel] = []

    def op(self, declaration: str, body: Body, *, into: bool = False) -> None:
        """Declare an operator whose body is at hand, in one line."""
        self.kernels.append(Kernel(parse(declaration), body, into, self.name))

    def kernel_of_some(self, declaration: str) -> Callable[[_B], _B]:
        """Declare an operator of many parameters, whose function takes by name those that it knows.

        A tensor, list or array for any other one is answered with NotImplementedError; numbers and texts for them,
        which mostly say how fast or how exactly a chip is to compute, are not looked at.
        """
        inputs = [each for each in parse(declaration).parameters if each.is_input]

        def declare(body: _B) -> _B:
            known = set(inspect.signature(body).parameters)
            self.op(declaration, lambda *given: body(**_known(inputs, known, given)))
            return body

        return declare

    def named(self, name: str, body: Body) -> None:
        """Declare an operator of the older kind, which is called by its name."""
        self.by_name.append(Kernel(Signature(name, ()), body, into=False, family=self.name))

    def kernel_named(self, name: str) -> Callable[[_B], _B]:
        """Declare an operator of the older kind above the function that computes it."""

        def declare(body: _B) -> _B:
            self.named(name, body)
            return body

        return declare

    def kernel(self, declaration: str) -> Callable[[_B], _B]:
        """Declare an operator above the function that computes it."""

        def declare(body: _B) -> _B:
            self.op(declaration, body)
            return body

        return declare


def _known(inputs: Iterable[Parameter], known: set[str], given: Iterable[Any]) -> dict[str, Any]:
    found = {each.name: (each.type, value) for each, value in zip(inputs, given, strict=True)}
    for name, (kind, value) in found.items():
        if name not in known and kind in CONTAINERS and value is not None and value != []:
            raise NotImplementedError(f"{name} is not implemented")
    return {name: value for name, (_, value) in found.items() if name in known}
