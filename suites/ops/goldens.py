"""How the goldens of operators are made: in float64 on the CPU, admitted only where a second reference agrees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from pytest_ascend.golden import GoldenRecipe

from .admission import admit, reference_of
from .catalogue import OPERATORS
from .evaluate import double, forward, gradients, on_tensors, upstream, with_grad
from .layouts import Placing, contiguous, onto, stepped, transposed
from .operator import Operator, Sample
from .properties import chosen
from .stored import BACKWARD, Results, description, golden_id, named, stored_samples

HOW = (
    "each sample of the catalogue, its inputs rounded to the dtype, then computed by torch on the CPU in float64 "
    "(integers and bool: exactly, in their own dtype); gradients by autograd in float64; beside each the result of "
    "torch's CPU kernels in the dtype itself, marked '~'"
)


_CPU = torch.device("cpu")
#: The layouts of stored.HONEST, in its order.
_PLACINGS: tuple[Placing, ...] = (contiguous, stepped, transposed)


def goldens() -> Iterable[GoldenRecipe]:
    """Give one recipe for each operator."""
    return [_recipe(operator) for operator in OPERATORS.values()]


def _recipe(operator: Operator) -> GoldenRecipe:
    return GoldenRecipe(
        id=golden_id(operator),
        make=partial(make, operator),
        how=HOW,
        seed=f"ops/{operator.name}",
        meta={
            "admitted_by": f"torch float64; {reference_of(operator)}",
            "inputs": {dtype: description(operator, dtype) for dtype in operator.dtypes},
        },
    )


def make(operator: Operator) -> Mapping[str, torch.Tensor]:
    """Compute all results of one operator. Raises AssertionError where two references do not agree."""
    tensors: dict[str, torch.Tensor] = {}
    for dtype in operator.dtypes:
        for sample in stored_samples(operator, dtype):
            results = computed(operator, sample, dtype)
            admit(operator, sample, dtype, results)
            tensors |= named(dtype, "forward", sample, results)
        for sample in chosen(operator, BACKWARD, dtype):
            tensors |= named(dtype, BACKWARD, sample, differentiated(operator, sample, dtype))
    return tensors


def computed(operator: Operator, sample: Sample, dtype: str) -> Results:
    """Call once in float64 and once in the dtype itself."""
    kind = getattr(torch, dtype)
    exact = operator.reference or operator.function
    with _numbers_in_float64():
        expected = forward(exact, *on_tensors(double, sample.arguments(operator.name, kind)))
    return Results(list(expected), tuple(list(_honest(operator, sample, kind, placing)) for placing in _PLACINGS))


def _honest(operator: Operator, sample: Sample, kind: torch.dtype, placing: Placing) -> list[torch.Tensor]:
    args, kwargs = on_tensors(onto(_CPU, placing), sample.arguments(operator.name, kind))
    return forward(operator.function, args, kwargs)


def differentiated(operator: Operator, sample: Sample, dtype: str) -> Results:
    """Go back once in float64 and once in the dtype itself, from the same gradient above."""
    kind = getattr(torch, dtype)
    with _numbers_in_float64():
        exact = _gradients(operator.reference or operator.function, operator, sample, kind, double)
    honest = (_gradients(operator.function, operator, sample, kind, onto(_CPU, placing)) for placing in _PLACINGS)
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
def _numbers_in_float64() -> Iterator[None]:
    """Let torch make float64 of integers that become floating, as a quotient of two integers does."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
