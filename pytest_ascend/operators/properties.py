"""What is asked of every operator that has a definition: each property compares all its calls at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators import judging, layouts
from pytest_ascend.operators.draw import Call, Draw
from pytest_ascend.operators.judging import Tensors, tensors
from pytest_ascend.operators.layouts import LAYOUTS, Placing
from pytest_ascend.operators.operator import BACKWARD, FORWARD, LAYOUT, REPEAT, Operator
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare


@dataclass(frozen=True, slots=True)
class Subject:
    """An operator in one dtype, on one device."""

    operator: Operator
    dtype: torch.dtype
    device: torch.device
    compare: PrecisionCompare

    def calls(self) -> list[Call]:
        """Draw the calls of this dtype."""
        return self.operator.calls(self.dtype)

    def placed(self, call: Call, placing: Placing = layouts.contiguous, device: torch.device | None = None) -> Call:
        """Return the call with its tensors on a device: the one under test, unless another is named."""
        where = device or self.device
        args, kwargs = judging.on_tensors(lambda each: placing(each, where), (call.args, dict(call.kwargs)))
        return Call(call.name, args, kwargs)

    def fetched(self, outputs: Tensors) -> Tensors:
        """Bring results to the CPU, having seen that they are where they were to be computed."""
        for each in outputs:
            where = self.device if each is None else each.device
            if where != self.device:
                raise Disagreement(f"{self.operator.name}: a result is on {where} instead of {self.device}")
        return [each if each is None else each.cpu() for each in outputs]

    def run(self, call: Call, placing: Placing = layouts.contiguous) -> Tensors:
        """Call on the device and bring the results to the CPU."""
        return self.fetched(judging.forward(self.operator, self.operator.function, self.placed(call, placing)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is right for one call, and what honest devices make of it."""

    expected: Tensors
    honest: list[Tensors]


def check(case: Case, operator: Operator, device: torch.device, compare: PrecisionCompare) -> None:
    """Run the property that a case names. Raises AssertionError where the operator does not have it."""
    PROPERTIES[case.property](Subject(operator, getattr(torch, case.dtype), device, compare))


def _forward(subject: Subject) -> None:
    calls = subject.calls()
    wanted = {call.name: _wanted(subject, call) for call in calls}
    _judge(subject, {call.name: subject.run(call) for call in calls}, wanted)


def _layout(subject: Subject) -> None:
    actual: dict[str, Tensors] = {}
    wanted: dict[str, Wanted] = {}
    for call in subject.calls():
        given = tensors((call.args, dict(call.kwargs)))
        for layout, placing in LAYOUTS.items():
            if any(layouts.changes(placing, each) for each in given):
                name = f"{call.name}, {layout}"
                # The CPU's kernels take other ways there, and are honest in other ways.
                wanted[name] = _wanted(subject, subject.placed(call, placing, torch.device("cpu")))
                actual[name] = subject.run(call, placing)
    _judge(subject, actual, wanted)


def _backward(subject: Subject) -> None:
    actual: dict[str, Tensors] = {}
    wanted: dict[str, Wanted] = {}
    operator = subject.operator
    for call in subject.calls():
        _, above = drawn_above(subject.operator, call, subject.dtype)
        compute = partial(judging.backward, operator, operator.definition, above=above)
        expected = compute(judging.in_float64(call))
        wanted[call.name] = _with_honest(subject, call, compute, expected, [subject.dtype] * len(expected))
        placed = subject.placed(call)
        actual[call.name] = subject.fetched(judging.backward(operator, operator.function, placed, above))
    _judge(subject, actual, wanted)


def drawn_above(operator: Operator, call: Call, dtype: torch.dtype) -> tuple[Draw, list[torch.Tensor]]:
    """Make what comes from above, in the dtype of the case, and give what it was drawn with."""
    outputs = judging.forward(operator, operator.definition, judging.in_float64(call))
    floating = [each for each in outputs if each is not None and each.is_floating_point()][: operator.above]
    draw = operator.draw(dtype, call.name, "above")
    return draw, [draw.normal(*each.shape, grad=False) for each in floating]


def _repeat(subject: Subject) -> None:
    first: dict[str, Tensors] = {}
    again: dict[str, Tensors] = {}
    given: dict[str, list[torch.Tensor]] = {}
    left: dict[str, list[torch.Tensor]] = {}
    for call in subject.calls():
        placed = subject.placed(call)
        first[call.name] = subject.fetched(judging.forward(subject.operator, subject.operator.function, placed))
        _leave_poison(first[call.name], subject.device)
        again[call.name] = subject.fetched(judging.forward(subject.operator, subject.operator.function, placed))
        given[call.name] = [each.detach() for each in tensors((call.args, dict(call.kwargs)))]
        left[call.name] = [each.detach().cpu() for each in tensors((placed.args, dict(placed.kwargs)))]
    name = subject.operator.name
    subject.compare(again, first, standard="binary", name=f"{name}, called again")
    subject.compare(left, given, standard="binary", name=f"{name}: its inputs, after the calls")


def _leave_poison(like: Tensors, device: torch.device) -> None:
    """Let the memory that the next results are put into hold what no result has."""
    found = [each for each in like if each is not None for _ in range(4)]
    junk = [layouts.poisoned(tuple(each.shape), each.dtype).to(device) for each in found]
    del junk


def _wanted(subject: Subject, call: Call) -> Wanted:
    operator = subject.operator
    compute = partial(judging.forward, operator, operator.definition)
    expected = compute(judging.in_float64(call))
    return _with_honest(subject, call, compute, expected, judging.dtypes_of(operator, expected, subject.dtype))


def _with_honest(
    subject: Subject,
    call: Call,
    compute: Callable[[Call], Tensors],
    expected: Tensors,
    dtypes: list[torch.dtype],
) -> Wanted:
    """Return what is right; of operators that only move or round, in the dtype itself."""
    found = judging.honest(compute, call, expected, dtypes)
    if subject.operator.exact:
        return Wanted(found[0], [])
    ulps = subject.operator.ulps
    moved = [judging.shaken(*each, ulps) for each in zip(expected, found[0], strict=True)]
    return Wanted(expected, [*found, moved])


def _judge(subject: Subject, actual: Mapping[str, Tensors], wanted: Mapping[str, Wanted]) -> None:
    expected = {name: each.expected for name, each in wanted.items()}
    name = subject.operator.name
    if subject.operator.exact:
        subject.compare(actual, expected, standard="binary", name=name)
        return
    count = min(len(each.honest) for each in wanted.values())
    # The last is the shaken one; the CPU may lack one of the others for some calls.
    samples = [{key: each.honest[place] for key, each in wanted.items()} for place in (*range(count - 1), -1)]
    settings: dict[str, Any] = {"accumulation": subject.operator.terms} if subject.operator.terms > 1 else {}
    subject.compare(actual, expected, honest=Samples(samples), name=name, **settings)


#: Property -> what shows it.
PROPERTIES: Mapping[str, Callable[[Subject], None]] = {
    FORWARD: _forward,
    BACKWARD: _backward,
    LAYOUT: _layout,
    REPEAT: _repeat,
}
