"""What a sample gives: in float64, and from torch's CPU kernels in the dtype itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pytest_ascend.operators.layouts import Placing, contiguous, onto, stepped, transposed

from .evaluate import double, forward, gradients, on_tensors, upstream, with_grad
from .operator import Operator, Sample
from .stored import Results

_CPU = torch.device("cpu")
#: The layouts of stored.HONEST, in its order.
PLACINGS: tuple[Placing, ...] = (contiguous, stepped, transposed)


def computed(operator: Operator, sample: Sample, dtype: str, placings: tuple[Placing, ...] = PLACINGS) -> Results:
    """Call once in float64, and in the dtype itself from inputs in each layout."""
    kind = getattr(torch, dtype)
    exact = operator.reference or operator.function
    with numbers_in_float64():
        expected = forward(exact, *on_tensors(double, sample.arguments(operator.name, kind)))
    return Results(list(expected), tuple(list(_honest(operator, sample, kind, placing)) for placing in placings))


def _honest(operator: Operator, sample: Sample, kind: torch.dtype, placing: Placing) -> list[torch.Tensor]:
    args, kwargs = on_tensors(onto(_CPU, placing), sample.arguments(operator.name, kind))
    return forward(operator.function, args, kwargs)


def differentiated(operator: Operator, sample: Sample, dtype: str, placings: tuple[Placing, ...] = PLACINGS) -> Results:
    """Go back once in float64, and in the dtype itself from inputs in each layout, from the same gradient above."""
    kind = getattr(torch, dtype)
    with numbers_in_float64():
        exact = _gradients(operator.reference or operator.function, operator, sample, kind, double)
    honest = (_gradients(operator.function, operator, sample, kind, onto(_CPU, placing)) for placing in placings)
    return Results(exact, tuple(honest))


def _gradients(
    function: Any, operator: Operator, sample: Sample, kind: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor | None]:
    """Go back from inputs, and from gradients above, that are changed in the same way: to float64, or in layout."""
    args, kwargs = on_tensors(change, sample.arguments(operator.name, kind))
    leaves = with_grad(sample, (args, kwargs), kind)
    above = lambda outputs: [change(each) for each in upstream(operator, sample, outputs, kind)]  # noqa: E731
    return gradients(function, args, kwargs, leaves, above)


@contextlib.contextmanager
def numbers_in_float64() -> Iterator[None]:
    """Let torch make float64 of integers that become floating, as a quotient of two integers does."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
