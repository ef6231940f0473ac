"""The reference of generated calls: what the CPU gives for each, computed when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_ascend.coverage.manifest import SWEEP_SEED
from pytest_ascend.dispatching import unseen
from pytest_ascend.operators.call_judging import BACKWARD, IN_PLACE
from pytest_ascend.operators.calling import Layout, bounded, is_affordable, on_tensors, tensors
from pytest_ascend.operators.generator import Generated, generate
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import (
    CPU,
    Definition,
    Results,
    Tensors,
    can_hold,
    computed,
    differentiated,
    own_forward,
    own_gradients,
)
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import in_dtype

#: The calls of a case, by its property: what is asked at level standard is not asked again at full.
CALLS = {"sweep": range(24), "sweep-more": range(24, 216)}
#: So many more are made at most, where some of those are not legal.
SPARE = 12


@dataclass(frozen=True, slots=True)
class Sweep:
    """The reference of generated calls, computed when needed. ``defined``: by the operator's definition.

    ``seed`` is that of the calls, None where they are given.
    """

    operator: Operator
    dtype: str
    calls: tuple[Generated, ...]
    seed: int | str | None = None
    defined: bool = False
    _definition: list[Definition] = field(default_factory=list)

    @classmethod
    def of(
        cls, operator: Operator, dtype: str, count: int | range, seed: int | str = SWEEP_SEED, *, defined: bool = False
    ) -> Sweep:
        """Generate the calls of an operator: so many, or those of a range that begins with a multiple of three."""
        which = range(count) if isinstance(count, int) else count
        calls = tuple(generate(operator, dtype, which.stop, seed, which.start))
        return cls(operator, dtype, calls, seed, defined, [Definition(operator)])

    def spare(self) -> Iterator[Generated]:
        """Generate more calls, to take the place of those that are not legal."""
        if self.seed is not None and self.calls:
            count = self.calls[-1].number + 1
            yield from generate(self.operator, self.dtype, count + SPARE, self.seed, start=count)

    def samples(self, _: str, __: str) -> tuple[Sample, ...]:
        """Return all calls."""
        return tuple(each.sample for each in self.calls)

    def forward(self, sample: Sample, dtype: str) -> Results:
        """Return the expected results of a call. Raises the CPU's error if it is not legal."""
        with unseen():
            if self.defined:
                return self._definition[0].forward(sample, dtype)
            return computed(self.operator, sample, dtype)

    def backward(self, sample: Sample, dtype: str) -> Results:
        """Return the gradients of a call."""
        with unseen():
            if self.defined:
                return self._definition[0].backward(sample, dtype)
            return differentiated(self.operator, sample, dtype)

    def _is_asked(self, given: Any) -> bool:
        """Whether a call is none of those that the operator leaves out, some of which end the process."""
        args, kwargs = given
        with unseen():
            try:
                return not callable(self.operator.sweep) or self.operator.sweep(*args, **kwargs)
            except Exception:  # noqa: BLE001 - arguments that the predicate does not expect: the call is not legal
                return False

    def usual(self, sample: Sample, given: Any, layout: Layout) -> Tensors | None:
        """Return the CPU's results of a call in the dtype itself, None if it is not legal."""
        if not self._is_asked(given):
            return None
        try:
            if self.defined:
                is_asked = is_affordable(self.operator, given)
                return self.forward(sample, self.dtype).reference_runs[0] if is_asked else None
            with bounded(self.operator, given):
                found = own_forward(self.operator, given, _copied(layout), getattr(torch, self.dtype))
            if not any(each.numel() for each in tensors(found)):
                self.forward(sample, self.dtype)  # float64 refuses empty results that half precision lets pass
        except Exception:  # noqa: BLE001 - whatever the CPU raises, the call is not legal; or it takes too much
            return None
        return found

    def usual_gradients(self, sample: Sample, given: Any) -> Tensors | None:
        """Return the CPU's gradients in the dtype itself, None if it has none, or they take too much.

        Where a gradient is asked for, a product copies what it is broadcast to.
        """
        try:
            if self.defined:
                return self.backward(sample, self.dtype).reference_runs[0]
            with bounded(self.operator, given):
                return own_gradients(self.operator, sample, self.dtype, given=given)
        except Exception:  # noqa: BLE001
            return None

    def usual_in_place(self, given: Any, layout: Layout) -> Tensors | None:
        """Return the first tensor after the CPU changed it in place, None if that is impossible."""
        with unseen():
            try:
                if not can_hold(self.operator, given, _copied(layout), getattr(torch, self.dtype)):
                    return None
                args, kwargs = on_tensors(_copied(layout), given)
                before = [each.shape for each in tensors(args[0])]
                self.operator.changes_first(*args, **kwargs)
                found = tensors(args[0])
                return [*found] if [each.shape for each in found] == before else None  # the CPU lets some of them grow
            except Exception:  # noqa: BLE001
                return None

    def results(self, sample: Sample, way: str) -> Results:
        """Return the expected results of a call, by its way: "" for forward, BACKWARD or IN_PLACE."""
        if way == BACKWARD:
            return self.backward(sample, self.dtype)
        found = self.forward(sample, self.dtype)
        return in_dtype(found, getattr(torch, self.dtype)) if way == IN_PLACE else found

    def results_beside(self, usual: Tensors, sample: Sample, way: str) -> Results | None:
        """Return the expected results with the only reference run that is known; None if they need more."""
        if self.defined or way == IN_PLACE:
            return None
        with unseen():
            exact = (differentiated if way else computed)(self.operator, sample, self.dtype, layouts=())
        return Results(exact.expected, (usual,))


def _copied(layout: Layout) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that copies a tensor on the CPU: some operators change their inputs."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        there = layout(tensor, CPU)
        return there.clone() if there.data_ptr() == tensor.data_ptr() else there

    return copied
