"""The expected results of a call, and what correct devices compute: computed here, or read from storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.calling import Layout
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.properties import chosen
from pytest_ascend.operators.samples import EXACT, Sample
from pytest_ascend.precision.formulas import active
from pytest_ascend.system.dispatching import HALF, ROUNDED_INSIDE, in_rounded_steps, lacks_half, unseen

#: Outputs or gradients, in order; None for a gradient that does not exist.
Tensors: TypeAlias = list[torch.Tensor | None]

#: Moves a tensor, or casts it.
Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

CPU = torch.device("cpu")
#: The layouts of reference runs: the CPU uses other kernels for them, which round more often.
SUM_LAYOUTS: tuple[Layout, ...] = (calling.contiguous, calling.stepped, calling.transposed)


@dataclass(frozen=True, slots=True)
class Results:
    """Expected results of a call: ``expected`` in float64 (integers, bool unchanged), ``reference_runs`` in the dtype.

    The first reference run is the usual one; the others use other layouts, or round more or less often.
    """

    expected: Tensors
    reference_runs: tuple[Tensors, ...]

    @property
    def first(self) -> torch.Tensor:
        """Return the first tensor of the first reference run. Raises ValueError if there is none."""
        found = self.reference_runs[0][0]
        if found is None:
            raise ValueError("the first result is None")
        return found


class Reference(Protocol):
    """The source of samples and expected results. Methods may raise GoldenError if they read stored ones."""

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property in a dtype."""

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the expected results of a call, or its gradients: one for each input that has one."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The reference of an operator with a definition, computed on the CPU when needed."""

    operator: Operator
    _known: dict[tuple[str, str, bool, str], Results] = field(default_factory=dict)

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property in a dtype."""
        return chosen(self.operator, property_, dtype)

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the definition's results or gradients.

        They are computed in float64, rounded, in float32, and in the dtype from several layouts.
        """
        key = (sample.name, dtype, backward, active())
        if key not in self._known:
            with unseen():
                self._known[key] = self._computed(sample, dtype, backward=backward)
        return self._known[key]

    def _computed(self, sample: Sample, dtype: str, *, backward: bool) -> Results:
        own, function = getattr(torch, dtype), self.operator.definition or self.operator.function

        def compute(change: Change) -> Tensors:
            return _run(function, self.operator, sample, own, change, backward=backward)

        with numbers_in_float64():
            expected = compute(calling.double)
        # A result has the dtype that the operator names for it, or is an integer.
        named = [getattr(torch, each) if each else own for each in self.operator.outputs]
        usual = [each.dtype if each is not None and not each.is_floating_point() else own for each in expected]
        dtypes = [own] * len(expected) if backward else named or usual
        if sample.group == EXACT:  # there is no other right result
            return Results(expected, (_cast(expected, dtypes),))
        in_float32 = compute(lambda each: each.float() if each.is_floating_point() else each)
        reference_runs = [_cast(expected, dtypes), _cast(in_float32, dtypes)]
        with contextlib.suppress(RuntimeError):  # the CPU lacks a step of the definition in a 16-bit dtype
            reference_runs += [_cast(compute(calling.onto(CPU, layout)), dtypes) for layout in SUM_LAYOUTS]
        reference_runs += [_cast(each, dtypes) for each in _rounded_once(compute, own)]
        return Results(expected, tuple(reference_runs))


def _cast(found: Tensors, dtypes: Sequence[torch.dtype]) -> Tensors:
    return [each if each is None else each.to(dtype) for each, dtype in zip(found, dtypes, strict=True)]


def computed(
    operator: Operator, sample: Sample, dtype: str, layouts: tuple[Layout, ...] = SUM_LAYOUTS, *, backward: bool = False
) -> Results:
    """Call in float64, and by torch's CPU kernel in the dtype itself with inputs in each layout.

    With ``backward``, differentiate instead, from the same grad_outputs.
    """
    kind, exactly = getattr(torch, dtype), operator.definition or operator.function
    given = sample.arguments(operator.name, kind)

    def own(change: Change) -> Tensors:
        return _run(operator.function, operator, sample, kind, change, given, backward=backward)

    with numbers_in_float64():
        exact = _run(exactly, operator, sample, kind, calling.double, given, backward=backward)
    runs = [_or_rounded(own, calling.onto(CPU, layout), kind) for layout in layouts[:1]]
    for layout in layouts[1:]:  # which the CPU need not take (view_as_complex)
        with contextlib.suppress(RuntimeError):
            runs.append(_or_rounded(own, calling.onto(CPU, layout), kind))
    return Results(exact, (*runs, *(_rounded_once(own, kind) if backward else ())))


def own_forward(operator: Operator, given: Any, change: Change, kind: torch.dtype) -> Tensors:
    """Return what the CPU computes in the dtype itself from given inputs, changed."""

    def compute(change: Change) -> Tensors:
        return list(calling.forward(operator, operator.function, *calling.on_tensors(change, given)))

    return _or_rounded(compute, change, kind)


def can_hold(operator: Operator, given: Any, change: Change, kind: torch.dtype) -> bool:
    """Whether integers can hold the first result: torch 2.8 and 2.9 die of changing some in place (mvlgamma_)."""
    if kind.is_floating_point or kind.is_complex:
        return True
    first = own_forward(operator, given, change, kind)[0]
    return first is None or torch.can_cast(first.dtype, kind)


def _or_rounded(compute: Callable[[Change], Tensors], change: Change, kind: torch.dtype) -> Tensors:
    """Return what the CPU computes from changed inputs, rounding float32's steps where it has none in half precision.

    Old versions of torch lack many such kernels, as 2.3 that of mse_loss in bfloat16. To round the result alone would
    ask for more than PyTorch promises: in float16 the step between may overflow.
    """
    try:
        return compute(change)
    except RuntimeError as error:
        if kind not in HALF or not lacks_half(error):
            raise
    return in_rounded_steps(lambda: compute(change))


def _rounded_once(compute: Callable[[Change], Tensors], kind: torch.dtype) -> tuple[Tensors, ...]:
    """Return another reference run where this torch's CPU kernels of some operators round inside.

    Chips do not. In half precision torch before 2.7 rounds the sum in the gradient of a softmax, which makes some
    elements zero. They are not far off then, and no measure for a result that is correct in all others too.
    """
    if kind not in HALF or not ROUNDED_INSIDE:
        return ()
    return (in_rounded_steps(lambda: compute(calling.onto(CPU))),)


def own_gradients(operator: Operator, sample: Sample, kind: torch.dtype, given: Any) -> Tensors:
    """Differentiate on the CPU in the dtype itself; ``given`` are the sample's arguments."""

    def own(change: Change) -> Tensors:
        return _run(operator.function, operator, sample, kind, change, given, backward=True)

    return _or_rounded(own, calling.onto(CPU), kind)


def _run(  # noqa: PLR0917 - an operator, its call, and how its inputs are changed
    function: Any,
    operator: Operator,
    sample: Sample,
    kind: torch.dtype,
    change: Change,
    given: Any = None,
    *,
    backward: bool,
) -> Tensors:
    """Call, or differentiate, with inputs and grad_outputs changed in the same way: to float64, or in layout."""
    # What is given stays as it is: it neither requires gradients nor is changed.
    made = sample.arguments(operator.name, kind) if given is None else calling.on_tensors(_copy, given)
    args, kwargs = calling.on_tensors(change, made)
    leaves = calling.with_grad(sample, (args, kwargs), kind) if backward else []
    outputs = calling.forward(operator, function, args, kwargs)
    if not backward:
        return [*outputs]
    return calling.back(
        operator, outputs, leaves, lambda its: [change(up) for up in calling.upstream(operator, sample, its, kind)]
    )


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides."""
    return calling.map_storage(torch.clone, tensor)


@contextlib.contextmanager
def numbers_in_float64() -> Iterator[None]:
    """Make torch convert integers to float64 in operators with floating results, as a quotient of two integers."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
