"""One line of the table: an operator of torch_npu by name, with its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_ascend.device import npu
from pytest_ascend.operators import InputFactory, Operator, Sample


def fused(
    name: str,
    definition: Callable[..., Any],
    inputs: Callable[[InputFactory], Iterable[Sample]],
    *,
    through: Callable[..., Any] | None = None,
    **settings: Any,
) -> Operator:
    """Describe ``torch_npu.NAME``; settings are those of :class:`Operator`.

    ``through`` gets the operator before the arguments of a call, if they are not simply passed on.
    """
    return Operator(
        name=name, function=partial(called, name, through), definition=definition, inputs=inputs, **settings
    )


def called(name: str, through: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
    """Call ``torch_npu.NAME``, through ``through`` if given."""
    operator = npu.operator(name)
    return through(operator, *args, **kwargs) if through else operator(*args, **kwargs)


def in_family(family: str, *operators: Operator) -> tuple[Operator, ...]:
    """Put operators into a family."""
    return tuple(replace(each, family=family) for each in operators)
