"""Functions whose result is exact in any order: inputs of whole numbers, and the results in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from pytest_ascend.precision.nested import tensors_in
from pytest_ascend.run import inputs
from pytest_ascend.system.errors import UsageError

#: Whole numbers up to this are exact in float32, in which sums are accumulated.
LARGEST = 2.0**24

Function: TypeAlias = Callable[..., Any]
#: Results, followed by gradients of the inputs.
Found: TypeAlias = list[torch.Tensor]


def calls(
    function: Function, definition: Function, shapes: Sequence[Sequence[int]], dtype: torch.dtype, device: str
) -> Iterator[tuple[str, Found, Found]]:
    """Yield each call's name, the device's results, and the only correct ones: those in float64, rounded once.

    One call has the numbers -1, 0 and 1; the other has 1 and 2, with the second half of the last tensor negative along
    its longest dimension. Raises UsageError for a function that is not exact for such numbers.
    """
    longest = max((size for shape in shapes for size in shape), default=0)
    last = max((place for place, shape in enumerate(shapes) if longest in shape), default=-1)
    keyed = [(f"exact/{place}", tuple(shape)) for place, shape in enumerate(shapes)]
    small = [inputs.integers(key, shape, low=-1, high=2) for key, shape in keyed]
    large = [inputs.integers(f"{key}/large", shape, low=1, high=3) for key, shape in keyed]
    if last >= 0:
        key, shape = keyed[last]
        dim, high = shape.index(longest), 2 if len(shapes) == 1 else 1
        large[last] = inputs.rising(f"{key}/rising", shape, dim=dim, high=high)
    for name, numbers in (("numbers -1, 0 and 1", small), ("numbers whose sum rises and falls", large)):
        exact = _run(definition, [each.double() for each in numbers])
        sizes = _run(definition, [each.double().abs() for each in numbers])
        # Means and scale factors produce such fractions.
        is_exact = all(bool((each * 2**14 % 1 == 0).all()) for each in exact if each.is_floating_point())
        if not is_exact or any(bool((each.abs() > LARGEST).any()) for each in sizes):
            raise UsageError(
                f"the function is not exact of {name}",
                hint="use one that only adds, multiplies and moves, with means of 2**n numbers, or smaller shapes",
            )
        # Without negative zeros, whose sign depends on the order.
        wanted = [each.to(dtype) + 0 if each.is_floating_point() else each for each in exact]
        found = (each.cpu() for each in _run(function, [each.to(dtype).to(device) for each in numbers]))
        actual = [each + 0 if each.is_floating_point() else each for each in found]
        yield f"{name}, {str(dtype).removeprefix('torch.')}", actual, wanted


def _run(function: Function, numbers: Sequence[torch.Tensor]) -> Found:
    """Return the results, and the gradients of the inputs if the function has any."""
    given = [each.requires_grad_() for each in numbers]
    outputs = tensors_in(function(*given))
    if not outputs:
        raise UsageError("the function returns no tensor", hint="give one whose results can be compared")
    attached, found = [each for each in outputs if each.requires_grad], [each.detach() for each in outputs]
    if attached:
        ups = [
            inputs.integers(f"exact/up/{place}", each.shape, low=-1, high=2, dtype=each.dtype).to(each.device)
            for place, each in enumerate(attached)
        ]
        found += [each for each in torch.autograd.grad(attached, given, ups, allow_unused=True) if each is not None]
    return found
