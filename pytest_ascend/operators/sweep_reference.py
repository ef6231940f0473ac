"""The reference of generated calls: what the CPU gives for each, computed when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytest_ascend.operators import reference
from pytest_ascend.operators.calling import Layout, bounded, is_affordable, on_tensors, tensors
from pytest_ascend.operators.generator import Generated, generate
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import CPU, Definition, Results, Tensors
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call
from pytest_ascend.records.case import SWEEP_SEED
from pytest_ascend.system.dispatching import unseen

#: The calls of a case, by its property: what is asked at level standard is not asked again at full.
CALLS = {"sweep": range(24), "sweep-more": range(24, 216)}
#: So many more are made at most, where some of those are not legal.
SPARE = 12


@dataclass(frozen=True, slots=True)
class Sweep:
    """The reference of generated calls, computed when needed: by the operator's ``definition`` where it is given.

    ``seed`` is that of the calls, None where they are given.
    """

    operator: Operator
    dtype: str
    calls: tuple[Generated, ...]
    seed: int | str | None = None
    definition: Definition | None = None

    @classmethod
    def of(
        cls, operator: Operator, dtype: str, *which: range, seed: int | str = SWEEP_SEED, defined: bool = False
    ) -> Sweep:
        """Generate the calls of an operator with these numbers: each range begins with a multiple of three."""
        calls = tuple(call for part in which for call in generate(operator, dtype, part.stop, seed, part.start))
        return cls(operator, dtype, calls, seed, Definition(operator) if defined else None)

    def spare(self) -> Iterator[Generated]:
        """Generate more calls, to take the place of those that are not legal."""
        if self.seed is not None and self.calls:
            count = self.calls[-1].number + 1
            yield from generate(self.operator, self.dtype, count + SPARE, self.seed, start=count)

    def samples(self, _: str, __: str) -> tuple[Sample, ...]:
        """Return all calls."""
        return tuple(each.sample for each in self.calls)

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the expected results of a call, or its gradients. Raises the CPU's error if it is not legal."""
        with unseen():
            if self.definition:
                return self.definition.expect(sample, dtype, backward=backward)
            return reference.computed(self.operator, sample, dtype, backward=backward)

    def expect_beside(self, usual: Tensors, call: Call) -> Results | None:
        """Return the expected results with the only reference run that is known; None if they need more."""
        if self.definition or call.direction == IN_PLACE:
            return None
        with unseen():
            exact = reference.computed(self.operator, call.sample, self.dtype, (), backward=call.direction == BACKWARD)
        return Results(exact.expected, (usual,))

    def usual(self, call: Call, given: Any) -> Tensors | None:
        """Return the CPU's results of a call in the dtype itself; None if it is not legal, or takes too much."""
        make = {BACKWARD: self._gradients, IN_PLACE: self._changed}.get(call.direction, self._results)
        try:
            return make(call, given)
        except Exception:  # noqa: BLE001 - whatever the CPU raises, the call is not legal; or it takes too much
            return None

    def _results(self, call: Call, given: Any) -> Tensors | None:
        args, kwargs = given
        with unseen():  # some calls that the operator leaves out end the process
            if callable(self.operator.sweep) and not self.operator.sweep(*args, **kwargs):
                return None
        if self.definition:
            is_asked = is_affordable(self.operator, given)
            return self.expect(call.sample, self.dtype).reference_runs[0] if is_asked else None
        with bounded(self.operator, given):
            found = reference.own_forward(self.operator, given, _copied(call.layout), getattr(torch, self.dtype))
        if not any(each.numel() for each in tensors(found)):
            self.expect(call.sample, self.dtype)  # float64 refuses empty results that half precision lets pass
        return found

    def _gradients(self, call: Call, given: Any) -> Tensors | None:
        """Return the gradients; where one is asked for, a product copies what it is broadcast to."""
        if self.definition:
            return self.expect(call.sample, self.dtype, backward=True).reference_runs[0]
        with bounded(self.operator, given):
            return reference.own_gradients(self.operator, call.sample, getattr(torch, self.dtype), given)

    def _changed(self, call: Call, given: Any) -> Tensors | None:
        with unseen():
            if not reference.can_hold(self.operator, given, _copied(call.layout), getattr(torch, self.dtype)):
                return None
            args, kwargs = on_tensors(_copied(call.layout), given)
            before = [each.shape for each in tensors(args[0])]
            self.operator.changes_first(*args, **kwargs)
            found = tensors(args[0])
            return [*found] if [each.shape for each in found] == before else None  # the CPU lets some of them grow


def _copied(layout: Layout) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that copies a tensor on the CPU: some operators change their inputs."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        there = layout(tensor, CPU)
        return there.clone() if there.data_ptr() == tensor.data_ptr() else there

    return copied
