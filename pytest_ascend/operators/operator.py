"""An operator that is judged by its definition: one entry of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.draw import Call, Draw
from pytest_ascend.records.case import Case

FLOATS = ("float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")

#: What is asked of every operator, in this order.
FORWARD, BACKWARD, LAYOUT, REPEAT = "forward", "backward", "layout", "repeat"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Operator:
    """A callable, what it has to compute, and what to call it with.

    ``function`` runs on the device. ``definition`` takes the same arguments and is run on the CPU in float64; it says
    what is right. ``inputs`` gives the calls to make, drawn with the :class:`Draw` that it gets.

    ``dtypes`` are names of torch's dtypes. ``outputs`` gives the dtype of each output to compare, "" for that of the
    case; where it is empty, every output is compared, and floating ones have the dtype of the case. ``grad`` tells
    whether it is differentiable, ``above`` by how many of its outputs a gradient comes in, ``layouts`` whether inputs
    of any strides are promised to work, ``deterministic`` whether calls repeat bit for bit. ``terms`` is the length of
    its longest sum, 0 where that is not known. ``exact`` operators only move or round elements: every bit is compared.
    ``ulps`` is what an honest device may be wrong by in an element, for operators that are not exact.
    """

    name: str
    function: Callable[..., Any]
    definition: Callable[..., Any]
    inputs: Callable[[Draw], Iterable[Call]]
    dtypes: tuple[str, ...] = FLOATS
    outputs: tuple[str, ...] = ()
    family: str = ""
    grad: bool = True
    above: int = 1
    layouts: bool = True
    deterministic: bool = True
    exact: bool = False
    terms: int = 0
    ulps: float = 2.0

    def draw(self, dtype: torch.dtype, *what: str) -> Draw:
        """Return what the inputs of a dtype are drawn with, or ``what`` else."""
        return Draw("/".join(("operators", self.name, *what)), dtype)

    def calls(self, dtype: torch.dtype, draw: Draw | None = None) -> list[Call]:
        """Draw all calls for a dtype. Raises UsageError where there is none, or two have one name."""
        calls = list(self.inputs(draw or self.draw(dtype)))
        names = [each.name for each in calls]
        if not calls or len(set(names)) < len(names):
            raise UsageError(
                f"the operator {self.name!r} has {'two calls of one name' if calls else 'no calls'} in {dtype}",
                hint="have its inputs= give at least one call, and name= those that look alike",
            )
        return calls

    def properties(self, dtype: str) -> tuple[str, ...]:
        """Return what is asked of it in a dtype."""
        floating = bool(getattr(torch, dtype).is_floating_point)
        asked = {
            FORWARD: True,
            BACKWARD: self.grad and floating,
            LAYOUT: self.layouts,
            REPEAT: self.deterministic and dtype == self.dtypes[0],
        }
        return tuple(name for name, is_asked in asked.items() if is_asked)


def cases_of(*operators: Operator, suite: str = "user") -> tuple[Case, ...]:
    """Return the cases of these operators, of each dtype and property. Raises UsageError for an unknown dtype."""
    for operator in operators:
        wrong = [each for each in operator.dtypes if not isinstance(getattr(torch, each, None), torch.dtype)]
        if wrong or not operator.dtypes:
            raise UsageError(
                f"the operator {operator.name!r} has the dtypes {operator.dtypes!r}",
                hint='name dtypes of torch: ("float32", "float16")',
            )
    return tuple(
        Case(
            suite=suite,
            subject=operator.name,
            property=property_,
            dtype=dtype,
            family=operator.family,
            level=_level(property_, is_first=dtype == operator.dtypes[0]),
        )
        for operator in operators
        for dtype in operator.dtypes
        for property_ in operator.properties(dtype)
    )


def _level(property_: str, *, is_first: bool) -> str:
    """Return the lowest level that runs a property: layouts of all but the first dtype, the dearest, come last."""
    if is_first:
        return "smoke" if property_ == FORWARD else "standard"
    return "full" if property_ == LAYOUT else "standard"
