"""Second references: the database's own (NumPy, SciPy), or torch's definition in terms of simpler operators.

Gradients are compared with finite differences: a directional one in float64, from two forward calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.operators.calling import forward, on_tensors, tensors, upstream, with_grad
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import Tensors, numbers_in_float64
from pytest_ascend.operators.samples import Sample
from pytest_ascend.precision.nested import widened
from pytest_ascend.run import inputs

from .database import definitions, opinfo
from .scientific import RECORDED
from .table import DECOMPOSED, FIRST_RESULT

#: A kind of second reference, and a function of tensors.
Reference: TypeAlias = tuple[str, Callable[..., Any]]
#: Largest relative and absolute difference between two results in float64.
Limits: TypeAlias = tuple[float, float]
#: Both compute in float64, with other formulas and in another order.
WIDE: Limits = (1e-8, 1e-10)
#: A central difference loses two thirds of the digits, and is inaccurate where the function is steep.
STEP, NEAR = 1e-6, 1e-4

NUMPY, DEFINITION, NONE = "NumPy or SciPy", "torch's definition by simpler operators", ""


def agreeing(
    operator: Operator, sample: Sample, dtype: str, expected: Tensors, known: Iterable[Reference], limits: Limits = WIDE
) -> str | None:
    """Return the name of a second reference that agrees, "" if there is none, or None if all of them differ."""
    asked = False
    for name, function in known:
        found = _called(function, operator, sample, dtype)
        if found is None:
            continue
        asked = True
        pairs = list(zip(expected, found, strict=False))
        if len(expected) == len(found) and all(_close(*each, limits) for each in pairs):
            return name
    return None if asked else NONE


def references(
    operator: Operator, infos: tuple[Any, ...], arrays: Mapping[str, Callable[..., Any]] = RECORDED
) -> Iterator[Reference]:
    """Yield an operator's second references: a function of ``arrays``, the database's own, a definition."""
    if operator.name in arrays:
        function = arrays[operator.name]

        def call(*args: Any, **kwargs: Any) -> Any:
            given, named = on_tensors(lambda each: each.detach().numpy(), (args, kwargs))
            return function(*given, **named)

        yield NUMPY, call
    is_own = operator.name in DECOMPOSED  # its result differs from that of torch's function of that name
    for info in infos[:1]:
        if operator.name.startswith("_foreach_") and info.ref is not None:
            yield DEFINITION, _one_by_one(info.ref)
        elif getattr(info, "ref", None) is not None and not is_own:
            yield NUMPY, _by_numpy(info)
    if operator.name in definitions() and not is_own:
        yield DEFINITION, definitions()[operator.name]


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator on lists that applies the function to each of their tensors."""

    def call(first: Any, *rest: Any, **named: Any) -> Any:
        def at(place: int, each: Any) -> Any:
            return each[place] if isinstance(each, list | tuple) and len(each) == len(first) else each

        return [
            function(one, *(at(place, each) for each in rest), **{key: at(place, each) for key, each in named.items()})
            for place, one in enumerate(first)
        ]

    return call


def _by_numpy(info: Any) -> Callable[..., Any]:
    sample: Callable[..., Any] = opinfo("opinfo.core").SampleInput

    def call(first: Any, *rest: Any, **named: Any) -> Any:
        given = sample(first, args=rest, kwargs=named).numpy()
        return info.ref(given.input, *given.args, **given.kwargs)

    return call


def _called(function: Callable[..., Any], operator: Operator, sample: Sample, dtype: str) -> list[torch.Tensor] | None:
    """Call a reference in float64; return None if it does not support this call, or does not return tensors."""
    args, kwargs = on_tensors(widened, sample.arguments(operator.name, getattr(torch, dtype)))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), numbers_in_float64():
            warnings.simplefilter("ignore")
            found = function(*args, **kwargs)
            found = found if isinstance(found, list | tuple) else [found]
            found = [x.detach() if isinstance(x, torch.Tensor) else torch.as_tensor(np.array(x)) for x in found]
            return found[:1] if operator.name in FIRST_RESULT else found
    except Exception:  # noqa: BLE001 - whatever it raises, it is no reference for this call
        return None


def _close(one: torch.Tensor | None, other: torch.Tensor, limits: Limits) -> bool:
    if one is None or one.shape != other.shape or other.is_complex() != one.is_complex():
        return False
    wide = torch.complex128 if one.is_complex() else torch.float64
    exact = not one.is_floating_point() and not one.is_complex()
    return torch.allclose(one.to(wide), other.to(wide), *((0.0, 0.0) if exact else limits), equal_nan=True)


def gradient_agrees(operator: Operator, sample: Sample, dtype: str, expected: Tensors) -> bool:
    """Return whether gradients agree with a central difference of the forward call, in one direction of all inputs."""
    kind = getattr(torch, dtype)
    args, kwargs = on_tensors(widened, sample.arguments(operator.name, kind))
    leaves = with_grad(sample, (args, kwargs), kind)
    grad_outputs = [
        widened(each) for each in upstream(operator, sample, tensors(operator.function(*args, **kwargs)), kind)
    ]
    ways = [_direction(f"{operator.name}/{sample.name}/{i}", each) for i, each in enumerate(leaves)]
    pairs = zip(expected, ways, strict=True)
    by_gradient = sum(_inner(each, way) for each, way in pairs if each is not None)

    def beside(step: float) -> float:
        """Call at a shifted point, and return the product with the incoming gradient."""
        usual = [each.detach().clone() for each in leaves]
        with torch.no_grad():
            for leaf, way in zip(leaves, ways, strict=True):
                leaf.add_(way, alpha=step)
            outputs = [each.clone() for each in forward(operator, operator.function, args, kwargs)]
            for leaf, before in zip(leaves, usual, strict=True):
                leaf.copy_(before)
        attached = [each for each in outputs if each.is_floating_point() or each.is_complex()]
        return sum(_inner(one, other) for one, other in zip(attached, grad_outputs, strict=False))

    there, back = beside(STEP), beside(-STEP)
    difference = (there - back) / (2 * STEP)
    size = max((abs(difference), abs(by_gradient), 1e-3, abs(there) * 1e-4))
    return bool(abs(difference - by_gradient) <= NEAR * size)


def _inner(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.conj() * other).sum().real) if one.is_complex() else float((one * other).sum().real)


def _direction(key: str, like: torch.Tensor) -> torch.Tensor:
    shape = (*like.shape, 2) if like.is_complex() else like.shape
    drawn = inputs.normal(key, shape).to(torch.float64)
    return (torch.view_as_complex(drawn) if like.is_complex() else drawn).to(like.dtype)
