"""How operators are declared: a family, a signature, a body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_ascend.emulator.signature import Signature, parse

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

    def op(self, declaration: str, body: Body, *, into: bool = False) -> None:
        """Declare an operator whose body is at hand, in one line."""
        self.kernels.append(Kernel(parse(declaration), body, into, self.name))

    def kernel(self, declaration: str) -> Callable[[_B], _B]:
        """Declare an operator above the function that computes it."""

        def declare(body: _B) -> _B:
            self.op(declaration, body)
            return body

        return declare
