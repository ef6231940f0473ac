"""The operator under test in one dtype on one device, and the calls whose results are judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.calling import Layout, back, forward, upstream, with_grad
from pytest_ascend.operators.generator import Generated
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import Reference, Results, Tensors, in_any_order, own_forward
from pytest_ascend.operators.samples import LONG, Sample, on_leaves
from pytest_ascend.precision.nested import widened
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement
from pytest_ascend.system.dispatching import no_dispatch

#: Directions of a call other than "" (forward): gradients of the inputs, or the first tensor changed in place.
BACKWARD, IN_PLACE = "backward", "in place"
#: How a program obtains a user's operator: the lines that import it, and an expression.
Origin: TypeAlias = tuple[Sequence[str], str]
#: The direction of each property whose calls are not forward.
DIRECTIONS = {"backward": BACKWARD, "backward-layout": BACKWARD, "in-place": IN_PLACE}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator: a sample in a layout and a direction.

    ``label`` is appended to the sample's name in verdicts; ``origin`` is the generated call, if it is one.
    """

    sample: Sample
    layout: Layout = calling.preserve_layout
    direction: str = ""
    label: str = ""
    origin: Generated | None = None

    @property
    def name(self) -> str:
        """Return its name in verdicts."""
        return ", ".join(filter(None, (self.sample.name, self.label)))

    @property
    def axes(self) -> tuple[str, ...]:
        """Return what the call varies, if it is generated."""
        return self.origin.axes if self.origin else ()


class Target:
    """An operator in one dtype, for one property, on one device, with its expected results."""

    def __init__(
        self, case: Case, operator: Operator, reference: Reference, device: torch.device, origin: Origin | None = None
    ) -> None:
        self.case, self.operator, self.device = case, operator, device
        self.dtype: torch.dtype = getattr(torch, case.dtype)
        self.origin = origin
        #: What the generated calls varied, and how often: see sweep.run.
        self.varied: Mapping[str, int] = {}
        self.use(reference)

    def use(self, reference: Reference) -> None:
        """Switch to another reference and its samples, and drop the inputs of earlier ones."""
        self.reference, self.samples = reference, reference.samples(self.case.property, self.case.dtype)
        self._inputs: dict[str, Any] = {}
        self._grad_outputs: dict[str, list[torch.Tensor]] = {}
        #: The calls made so far by name, the latest last.
        self.calls: dict[str, Call] = {}

    @property
    def latest(self) -> Call:
        """Return the call made last; before any, the first of the case."""
        direction = DIRECTIONS.get(self.case.property, "")
        return next(reversed(self.calls.values()), Call(self.samples[0], direction=direction))

    def note(self, call: Call) -> None:
        """Record a call: the program of a failed case repeats it."""
        self.calls.pop(call.name, None)
        self.calls[call.name] = call

    def shows(self, sample: Sample, property_: str) -> bool:
        """Return whether a sample belongs to a property."""
        return sample in self.reference.samples(property_, self.case.dtype)

    def on_cpu(self, sample: Sample) -> Any:
        """Return the arguments of a sample on the CPU: a tuple and a dictionary."""
        if sample.name in self._inputs:
            return self._inputs[sample.name]
        with no_dispatch():
            sampled = sample.arguments(self.operator.name, self.dtype)
        if self.device.type != "cpu":  # on the CPU, the call would write to the cached inputs themselves
            self._inputs[sample.name] = sampled
        return sampled

    def arguments(self, call: Call, device: torch.device | None = None) -> Any:
        """Return the arguments of a call on a device, by default the one under test, and record the call."""
        self.note(call)
        given = self.on_cpu(call.sample)
        with no_dispatch():  # copies only
            return placed(given, call.layout, device or self.device)

    def expect(self, call: Call) -> Results:
        """Return the expected results of a call; in-place comparisons are stored as 0 and 1 in the case's dtype."""
        backward = call.direction == BACKWARD
        found = self.reference.expect(call.sample, self.case.dtype, backward=backward)
        found = in_any_order(self.operator, call.sample, self.dtype, found, backward=backward)
        return in_dtype(found, self.dtype) if call.direction == IN_PLACE else found

    def execute(self, call: Call) -> Tensors:
        """Make a call on the device, and copy its results, gradients or changed tensor to the CPU."""
        if call.direction == BACKWARD:
            return self.both_ways(call)[1]
        args, kwargs = self.arguments(call)
        if call.direction == IN_PLACE:
            self.operator.changes_first(*args, **kwargs)
            return self.fetched(calling.tensors(args[0]))
        return self.fetched(forward(self.operator, self.operator.function, args, kwargs))

    def is_long(self, name: str) -> bool:
        """Return whether the sample of a named result has so large a tensor that the longest sums may run over it."""
        own = (each for each in self.samples if name.startswith(each.name))
        return any(math.prod(source.shape) > LONG for each in own for source in each.values())

    def layouts(self) -> dict[str, Layout]:
        """Return the layouts in which the operator is tested."""
        names = calling.LAYOUTS if isinstance(self.operator.layouts, bool) else self.operator.layouts
        return {name: calling.LAYOUTS[name] for name in names}

    def run_in_other_dtype(self, sample: Sample) -> None:
        """Make the same call in the operator's least precise other dtype, if that is legal, and ignore its results.

        A device that caches preparations by sizes alone then gives wrong results in the next call.
        """
        others = [getattr(torch, each) for each in self.operator.dtypes if each != self.case.dtype]
        alike = [each for each in others if each.is_floating_point == self.dtype.is_floating_point]
        if not alike:
            return
        # Neighbouring numbers are farthest apart in it; for integers, its range is the smallest.
        other = max(alike, key=lambda each: torch.finfo(each).eps if each.is_floating_point else -each.itemsize)
        try:
            with no_dispatch():
                given = sample.arguments(self.operator.name, other)
                if not any(each.dtype is other for each in calling.tensors(given)):
                    return  # drawn by a user's function
                own_forward(self.operator, given, torch.clone, other)
                there = placed(given, calling.preserve_layout, self.device)
            forward(self.operator, self.operator.function, *there)
        except Exception:  # noqa: BLE001, S110 - the call may be illegal, and it is not the one under test
            pass

    def fetched(self, outputs: Iterable[torch.Tensor | None]) -> Tensors:
        """Copy results to the CPU. Raises Disagreement if a result is on another device than expected."""
        found: Tensors = []
        with no_dispatch():
            for each in outputs:
                if each is not None and each.device != self.device:
                    raise Disagreement(f"{self.operator.name}: a result is on {each.device} instead of {self.device}")
                found.append(each if each is None else each.detach().cpu())
        return found

    def both_ways(self, call: Call) -> tuple[Tensors, Tensors]:
        """Run forward and backward; copy results and gradients to the CPU. The grad_outputs have the call's layout."""
        sample = call.sample

        def grad_outputs(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            with no_dispatch():
                if sample.name not in self._grad_outputs:
                    self._grad_outputs[sample.name] = upstream(self.operator, sample, outputs, self.dtype)
                return [call.layout(each, self.device) for each in self._grad_outputs[sample.name]]

        args, kwargs = self.arguments(call)
        leaves = with_grad(sample, (args, kwargs), self.dtype)
        outputs = forward(self.operator, self.operator.function, args, kwargs)
        found = self.fetched(outputs)
        try:
            gradients = back(self.operator, outputs, leaves, grad_outputs)
        except RuntimeError as error:
            if "no autograd formula" not in str(error):  # torch.library.custom_op without register_autograd
                raise
            gradients = []
        if self.origin and not any(each is not None for each in gradients):
            raise NotImplementedError(
                f"{self.operator.name} has no backward: add it with torch.library.register_autograd, or give grad=False"
            )
        return found, self.fetched(gradients)


def placed(arguments: Any, layout: Layout, device: torch.device) -> Any:
    """Move the tensors among the arguments to a device, and replace devices among the arguments by it."""

    def put(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return layout(leaf, device)
        return device if isinstance(leaf, torch.device) or leaf == "cpu" else leaf  # devices may be strings

    return on_leaves(put, arguments)


def in_dtype(results: Results, dtype: torch.dtype) -> Results:
    """Return results as stored in a tensor of this dtype: comparisons become 0 and 1."""
    if results.first.dtype is not torch.bool or dtype is torch.bool:
        return results
    with no_dispatch():
        written: torch.Tensor = results.first.to(dtype)
        return Results([widened(written)], tuple([written] for _ in results.reference_runs))
